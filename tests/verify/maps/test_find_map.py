"""What is seen through, what is refused, and that the reason says what did not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from proof_lm.errors import MapError
from proof_lm.verify.maps import find_map
from verify.foreign import cs336_style, litgpt_style, llms_from_scratch_style, nanogpt_style
from verify.maps.agreement import float64_bound, residuals
from verify.maps.cases import MODERN, hugging_face, stranger


class Wrapper(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.inner(ids)


@pytest.mark.parametrize(
    "wrap",
    [lambda module: Wrapper(Wrapper(module)), lambda module: torch.compile(module, backend="eager")],
    ids=["wrapper", "compiled"],
)
def test_a_wrapper_is_seen_through(wrap: Callable[[nn.Module], nn.Module]) -> None:
    module = cs336_style.build().double()
    wrapped = wrap(module)
    found = find_map(wrapped)
    assert {place.name for place in found.places.values()} == set(dict(wrapped.named_parameters()))
    assert found.config == find_map(module).config
    if isinstance(wrapped, Wrapper):  # no need to compile it
        logits, gradients = residuals(found, wrapped, lambda module, ids: module(ids))
        assert max(logits, gradients) <= float64_bound(found)


def test_what_the_norms_declare_is_the_eps() -> None:
    module = cs336_style.build()
    for part in module.modules():
        if isinstance(part, cs336_style.RMSNorm):
            part.eps = 1e-6
    assert find_map(module).config.norm_eps == 1e-6


def test_values_may_be_declared_by_a_config_of_any_kind() -> None:
    module = cs336_style.build()
    module.config = {"rope_theta": 10000.0, "num_heads": 5}
    for layer in module.layers:
        del layer.attn.theta
    assert find_map(module).config.rope_theta == 10000.0


def test_head_and_embedding_that_are_one_parameter_are_tied() -> None:
    for module, head in (
        (cs336_style.build(), "lm_head"),
        (litgpt_style.build(), "lm_head"),
        (llms_from_scratch_style.build(), "out_head"),
    ):
        embedding = next(
            part for name, part in module.named_modules() if name.endswith(("wte", "emb", "embeddings"))
        )
        assert not find_map(module).config.tie_embeddings
        getattr(module, head).weight = embedding.weight
        found = find_map(module)
        assert found.config.tie_embeddings
        assert found.places["embedding.weight"].name in dict(module.named_parameters())


def test_a_tie_that_broke_is_no_tie() -> None:
    module = nanogpt_style.build()
    assert find_map(module).config.tie_embeddings
    module.lm_head.weight = nn.Parameter(module.lm_head.weight.detach().clone())
    assert not find_map(module).config.tie_embeddings


class NewGELU(nn.Module):
    """As minGPT and others call GPT-2's approximation."""


@pytest.mark.parametrize(
    ("layer", "activation"),
    [
        (nn.GELU(), "gelu"),
        (nn.GELU("tanh"), "gelu_tanh"),
        (NewGELU(), "gelu_tanh"),
        (nn.ReLU(), "relu"),
        (nn.SiLU(), "silu"),
        (nn.Identity(), "gelu"),
    ],
)
def test_the_activation_is_that_of_a_layer(layer: nn.Module, activation: str) -> None:
    module = nanogpt_style.build()
    for block in module.transformer.h:
        block.mlp.act = layer
    assert find_map(module).config.activation == activation


def two_activations() -> nn.Module:
    module = nanogpt_style.build()
    first, second = module.transformer.h
    first.mlp.act, second.mlp.act = nn.GELU(), nn.ReLU()
    return module


def without(module: nn.Module, path: str, name: str) -> nn.Module:
    delattr(module.get_submodule(path), name)
    return module


def with_parameter(module: nn.Module, path: str, name: str, *shape: int) -> nn.Module:
    module.get_submodule(path).register_parameter(name, nn.Parameter(torch.ones(shape)))
    return module


def undeclared() -> nn.Module:
    module = cs336_style.build()
    del module.context_length
    for layer in module.layers:
        del layer.attn.theta, layer.attn.num_heads
    return module


def two_thetas() -> nn.Module:
    module = cs336_style.build()
    module.layers[1].attn.theta = 500.0
    return module


def two_eps() -> nn.Module:
    module = cs336_style.build()
    module.layers[1].ln2.eps = 1e-6
    return module


def broken_context() -> nn.Module:
    module = cs336_style.build()
    module.context_length = 23.5
    return module


def five_heads() -> nn.Module:
    module = nanogpt_style.build()
    for part in (module.config, *(block.attn for block in module.transformer.h)):
        part.n_head = 5
    return module


def no_heads(module: nn.Module) -> nn.Module:
    for part in module.modules():
        for name in ("n_head", "num_heads", "config"):
            if name in vars(part):
                delattr(part, name)
    return module


def shared_blocks() -> nn.Module:
    module = cs336_style.build()
    module.layers[1].ffn = module.layers[0].ffn
    return module


def other_head() -> nn.Module:
    module = stranger(MODERN)
    module.config = MODERN.with_(tie_embeddings=True)
    return module


def with_config(module: nn.Module, **changes: object) -> nn.Module:
    for name, value in changes.items():
        setattr(module.config, name, value)
    return module


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "no decoder": (lambda: nn.Linear(2, 3), r"^Linear is of no known layout: none knows .* \(weight, bias\)"),
    "no parameters": (nn.Identity, r"Identity .* \(it has none\)"),
    "what can be done": (lambda: nn.Linear(2, 3), "a map file can give that"),
    "nothing declared": (
        undeclared,
        (
            r"with 30 of 30 names, CS336: neither a shape nor .* tells n_heads \(looked for num_heads and n_heads\), "
            r"context_length \(.*\), rope_theta \(looked for rope_theta and theta\); .* a map file"
        ),
    ),
    "two values": (
        two_thetas,
        r"declares both layers.0.attn.theta = 10000.0 and layers.1.attn.theta = 500.0",
    ),
    "two eps": (two_eps, r"declares both layers.0.ln1.eps = 1e-05 and layers.1.ln2.eps = 1e-06"),
    "half a token": (broken_context, r"context_length or max_seq_len must be a whole number, .* 23\.5"),
    "a part is missing": (
        lambda: without(cs336_style.build(), "layers.1.ffn", "w3"),
        r"1 missing: layers.1.ffn.w3.weight",
    ),
    "the first is missing": (
        lambda: without(cs336_style.build(), "layers.0.ffn", "w3"),
        r"CS336: there is no parameter layers.0.ffn.w3.weight",
    ),
    "a part is left over": (
        lambda: with_parameter(cs336_style.build(), "layers.2.attn", "sink", 5),
        r"nearest, with 30 of 31 names, CS336: .* 1 left over: layers.2.attn.sink",
    ),
    "a bias on the head": (
        lambda: with_parameter(litgpt_style.build(), "lm_head", "bias", 37),
        r"1 left over: lm_head.bias",
    ),
    "a wrong shape": (
        lambda: with_parameter(cs336_style.build(), "layers.1.ln1", "weight", 19),
        r"1 of the wrong shape: layers.1.ln1.weight \(expected \[20\], found \[19\]\)",
    ),
    "an embedding that is no matrix": (
        lambda: with_parameter(cs336_style.build(), "token_embeddings", "weight", 20),
        r"the embedding must be a matrix, got shape \[20\]",
    ),
    "an embedding that is a number": (
        lambda: with_parameter(cs336_style.build(), "token_embeddings", "weight"),
        r"token_embeddings.weight is a single number",
    ),
    "no queries": (
        lambda: with_parameter(nanogpt_style.build(), "transformer.h.0.attn.c_attn", "weight", 2, 18),
        r"0 rows of queries and 0 of keys are not those of 3 heads",
    ),
    "heads that do not divide": (five_heads, r"18 rows of queries and 18 of keys are not those of 5 heads"),
    "nanogpt with two activations": (
        two_activations,
        r"nanoGPT: it has different activations: transformer.h.0.mlp.act \(gelu\), transformer.h.1.mlp.act \(relu\)",
    ),
    "nanogpt without heads": (lambda: no_heads(nanogpt_style.build()), r"nanoGPT: no attribute n_head"),
    "book without heads": (
        lambda: no_heads(llms_from_scratch_style.build()),
        r"LLMs-from-scratch: no attribute num_heads",
    ),
    "shared blocks": (
        shared_blocks,
        (
            r"blocks.0.feed_forward.gate.weight and blocks.1.feed_forward.gate.weight both lie in rows 0 to 33 of "
            r"layers.0.ffn.w1.weight, which is one parameter"
        ),
    ),
    "parallel residual": (
        litgpt_style.build_parallel_residual,
        r"with 17 of 17 names, LitGPT with LLaMAMLP: its config has parallel_residual = True, of which only False is",
    ),
    "partly rotated": (litgpt_style.build_partly_rotated, r"rotary_percentage = 0.5"),
    "gemma's norms": (
        lambda: litgpt_style.build(name="Gemma-2b"),
        r"'Gemma-2b', and LitGPT adds 1 to the gains",
    ),
    "an unknown norm": (
        lambda: with_config(litgpt_style.build(), norm_class_name="ScaleNorm"),
        r"norm_class_name = 'ScaleNorm'; those read are LayerNorm, RMSNorm",
    ),
    "windows in some layers": (
        lambda: with_config(litgpt_style.build(), sliding_window_size=5, sliding_window_indices=[0, 1]),
        r"sliding_window_indices = \[0, 1\]; only the same for all layers is read",
    ),
    "a field is missing": (
        lambda: with_config(litgpt_style.build(), rope_base=None),
        "its config lacks rope_base",
    ),
    "a field is nonsense": (
        lambda: with_config(litgpt_style.build(), block_size=-1),
        "context_length must be a positive",
    ),
    "layers beyond counting": (
        lambda: with_config(litgpt_style.build(), n_layer=10**12),
        "n_layers is 1000000000000, and the module has 17 parameters",
    ),
    "no config": (
        lambda: no_heads(litgpt_style.build()),
        "LitGPT with LLaMAMLP: the module has no config attribute",
    ),
    "our names without our config": (
        lambda: no_heads(stranger(MODERN)),
        r"ProofLM: the module has no config attribute that is a DecoderConfig",
    ),
    "a head where the config ties": (other_head, r"ProofLM: .* 1 left over: head.weight"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_with_the_reason(name: str) -> None:
    build, message = REFUSED[name]
    with pytest.raises(MapError, match=message):
        find_map(build())


@pytest.mark.parametrize(("window", "used"), [(5, [1, 1]), (5, None), (None, [0, 0]), (None, None)])
def test_litgpts_window_is_read_where_it_is_everywhere(window: int | None, used: list[int] | None) -> None:
    size = 5 if used is not None else window
    module = with_config(litgpt_style.build(), sliding_window_size=size, sliding_window_indices=used)
    assert find_map(module).config.sliding_window == window


@pytest.mark.parametrize(("interleaved", "layout"), [(True, "interleaved"), (False, "half")])
def test_litgpts_rotary_pairs_are_read(interleaved: bool, layout: str) -> None:
    module = with_config(litgpt_style.build(), rope_interleave=interleaved)
    assert find_map(module).config.rope_layout == layout


class NeoxMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.proj = nn.Linear(22, 34, bias=False), nn.Linear(34, 22, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(nn.functional.gelu(self.fc(x)))


def test_litgpts_plain_feed_forward_layer_is_known() -> None:
    module = with_config(litgpt_style.build(), mlp_class_name="GptNeoxMLP")
    for block in module.transformer.h:
        block.mlp = NeoxMLP()
    found = find_map(module.double())
    assert found.family == "LitGPT with GptNeoxMLP"
    logits, gradients = residuals(found, module, lambda module, ids: module(ids))
    assert max(logits, gradients) <= float64_bound(found)


class TestHuggingFace:
    @pytest.fixture(autouse=True)
    def _needs_the_peer(self) -> None:
        pytest.importorskip("transformers", reason="the peer, transformers (extra 'hf'), is not installed")

    def refusal(self, name: str, **changes: object) -> str:
        module = with_config(hugging_face(name).build(), **changes)
        with pytest.raises(MapError) as refused:
            find_map(module)
        return str(refused.value)

    def test_a_field_that_changes_the_function(self) -> None:
        message = self.refusal("gpt2", scale_attn_by_inverse_layer_idx=True)
        assert "Hugging Face GPT-2: GPT2Config: scale_attn_by_inverse_layer_idx is True" in message
        assert "nanoGPT: transformer.h.0.attn.c_attn.weight is [24, 72], stored (in, out)" in message

    def test_scaled_rotary_angles(self) -> None:
        scaled = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
        assert "scales the rotary angles ('linear')" in self.refusal("llama", rope_parameters=scaled)

    def test_another_kind_of_model(self) -> None:
        import transformers

        config = transformers.Qwen2Config(
            vocab_size=37,
            num_hidden_layers=2,
            hidden_size=24,
            num_attention_heads=6,
            num_key_value_heads=2,
            intermediate_size=44,
        )
        with pytest.raises(MapError, match=r"model_type is 'qwen2'; those read are llama, mistral"):
            find_map(transformers.Qwen2ForCausalLM(config))

    def test_a_tie_that_broke(self) -> None:
        module = hugging_face("llama tied").build()
        module.lm_head.weight = nn.Parameter(module.lm_head.weight.detach().clone())
        with pytest.raises(MapError, match=r"1 left over: lm_head\.weight"):
            find_map(module)

    def test_a_base_model_has_no_head(self) -> None:
        with pytest.raises(MapError, match="LlamaModel is of no known layout"):
            find_map(hugging_face("llama").build().model)

    def test_a_model_without_its_config(self) -> None:
        module = hugging_face("llama").build()
        module.config = None
        with pytest.raises(MapError, match=r"Hugging Face Llama: the module has no config with to_dict\(\)"):
            find_map(module)
