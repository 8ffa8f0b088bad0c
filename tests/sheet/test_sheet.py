"""The sheet against published numbers, and its two derivations against each other."""

import itertools
import subprocess
import sys

import pytest

import proof_lm.sheet
from proof_lm.config import DecoderConfig
from proof_lm.presets import preset
from proof_lm.sheet import parameter_count, tensors

# Pairwise different, so that no count can be right with two letters exchanged.
SIZES = {"vocab_size": 31, "context_length": 17, "n_layers": 3, "d_model": 26, "n_heads": 6, "d_ff": 11}


@pytest.mark.parametrize(
    ("name", "published"), [("chapter", 69_120), ("gpt2", 124_439_808), ("smollm2-135m", 134_515_008)]
)
def test_published_counts(name: str, published: int) -> None:
    assert parameter_count(preset(name)) == published
    assert sum(spec.size for spec in tensors(preset(name))) == published


def test_formula_equals_sum_of_sizes_for_every_combination_of_fields() -> None:
    flags = (True, False)
    axes = {
        "norm": ("layernorm", "rmsnorm"),
        "norm_bias": flags,
        "position": ("rope", "learned", "none"),
        "feed_forward": ("mlp", "gated"),
        "attention_bias": flags,
        "attention_out_bias": flags,
        "feed_forward_bias": flags,
        "tie_embeddings": flags,
        "n_kv_heads": (6, 3, 1),
    }
    counts = []
    for values in itertools.product(*axes.values()):
        fields = dict(zip(axes, values, strict=True))
        if fields["norm"] == "rmsnorm" and fields["norm_bias"]:
            continue
        config = DecoderConfig(**SIZES, head_dim=4, **fields)
        counts.append(parameter_count(config))
        assert counts[-1] == sum(spec.size for spec in tensors(config)), config
    assert len(counts) == 864
    assert len(set(counts)) > 100  # every field moves the count: a formula that ignored one would fail above


def test_a_window_weighs_nothing() -> None:
    config = DecoderConfig(**SIZES, head_dim=4)
    assert tensors(config.with_(sliding_window=3)) == tensors(config)
    assert parameter_count(config.with_(sliding_window=3)) == parameter_count(config)


def test_order_and_shapes_of_a_bias_free_gated_decoder() -> None:
    config = DecoderConfig(
        **{**SIZES, "n_layers": 1},
        n_kv_heads=3,
        head_dim=4,
        norm="rmsnorm",
        feed_forward="gated",
        attention_bias=False,
        attention_out_bias=False,
        feed_forward_bias=False,
        tie_embeddings=False,
    )
    assert [(spec.name, spec.shape, spec.role) for spec in tensors(config)] == [
        ("embedding.weight", (31, 26), "embedding"),
        ("blocks.0.attention_norm.weight", (26,), "norm"),
        ("blocks.0.attention.query.weight", (24, 26), "attention"),
        ("blocks.0.attention.key.weight", (12, 26), "attention"),
        ("blocks.0.attention.value.weight", (12, 26), "attention"),
        ("blocks.0.attention.out.weight", (26, 24), "attention"),
        ("blocks.0.feed_forward_norm.weight", (26,), "norm"),
        ("blocks.0.feed_forward.gate.weight", (11, 26), "feed_forward"),
        ("blocks.0.feed_forward.up.weight", (11, 26), "feed_forward"),
        ("blocks.0.feed_forward.down.weight", (26, 11), "feed_forward"),
        ("final_norm.weight", (26,), "norm"),
        ("head.weight", (31, 26), "head"),
    ]


def test_order_and_shapes_with_biases_and_learned_positions() -> None:
    config = DecoderConfig(**{**SIZES, "n_layers": 1}, head_dim=4, position="learned")
    assert [(spec.name, spec.shape) for spec in tensors(config)] == [
        ("embedding.weight", (31, 26)),
        ("position_embedding.weight", (17, 26)),
        ("blocks.0.attention_norm.weight", (26,)),
        ("blocks.0.attention_norm.bias", (26,)),
        ("blocks.0.attention.query.weight", (24, 26)),
        ("blocks.0.attention.query.bias", (24,)),
        ("blocks.0.attention.key.weight", (24, 26)),
        ("blocks.0.attention.key.bias", (24,)),
        ("blocks.0.attention.value.weight", (24, 26)),
        ("blocks.0.attention.value.bias", (24,)),
        ("blocks.0.attention.out.weight", (26, 24)),
        ("blocks.0.attention.out.bias", (26,)),
        ("blocks.0.feed_forward_norm.weight", (26,)),
        ("blocks.0.feed_forward_norm.bias", (26,)),
        ("blocks.0.feed_forward.up.weight", (11, 26)),
        ("blocks.0.feed_forward.up.bias", (11,)),
        ("blocks.0.feed_forward.down.weight", (26, 11)),
        ("blocks.0.feed_forward.down.bias", (26,)),
        ("final_norm.weight", (26,)),
        ("final_norm.bias", (26,)),
    ]


def test_exports() -> None:
    assert sorted(proof_lm.sheet.__all__) == proof_lm.sheet.__all__
    for name in proof_lm.sheet.__all__:
        assert hasattr(proof_lm.sheet, name)


def test_importing_the_sheet_imports_neither_torch_nor_the_oracle() -> None:
    program = (
        "import sys, proof_lm.sheet; print([m for m in sys.modules if m.split('.')[0] == 'torch'"
        " or m.startswith('proof_lm.oracle')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
