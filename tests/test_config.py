"""DecoderConfig: what it refuses and says, what it derives, and its round trip through JSON."""

import copy
import dataclasses
import json
import pickle
import re

import pytest

from proof_lm.config import DecoderConfig
from proof_lm.errors import ConfigError, ProofLMError
from proof_lm.presets import PRESETS
from sizes import LEARNED, MODERN, SMALL

REQUIRED = {"vocab_size": 31, "context_length": 29, "n_layers": 2, "d_model": 24, "n_heads": 6, "d_ff": 37}
CONFIGS = {
    "small": SMALL,
    "window": SMALL.with_(sliding_window=5),
    "modern": MODERN,
    "learned": LEARNED,
    **PRESETS,
}
FIELDS = ", ".join(field.name for field in dataclasses.fields(DecoderConfig))


def refuse(message: str):
    return pytest.raises(ConfigError, match=f"^{re.escape(message)}$")


@pytest.mark.parametrize("field", [*REQUIRED, "n_kv_heads", "head_dim"])
@pytest.mark.parametrize("value", [0, -3, 2.0, True, "6"])
def test_counts_must_be_positive_integers(field: str, value: object) -> None:
    with refuse(f"{field} must be a positive integer, got {value!r}"):
        DecoderConfig(**{**REQUIRED, field: value})


@pytest.mark.parametrize("field", REQUIRED)
def test_a_required_count_is_not_derived(field: str) -> None:
    with refuse(f"{field} must be a positive integer, got None"):
        DecoderConfig(**{**REQUIRED, field: None})


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "6"])
def test_a_window_is_a_positive_integer_or_none(value: object) -> None:
    with refuse(f"sliding_window must be a positive integer, or None for no window, got {value!r}"):
        DecoderConfig(**REQUIRED, sliding_window=value)
    assert DecoderConfig(**REQUIRED, sliding_window=1).sliding_window == 1
    assert DecoderConfig(**REQUIRED, sliding_window=None).sliding_window is None


def test_json_written_before_there_was_a_window_still_loads() -> None:
    fields = SMALL.to_dict()
    assert fields.pop("sliding_window") is None
    assert DecoderConfig.from_json(json.dumps(fields)) == SMALL


CHOICES = {
    "norm": "layernorm, rmsnorm",
    "position": "rope, learned, none",
    "rope_layout": "interleaved, half",
    "feed_forward": "mlp, gated",
    "activation": "gelu, gelu_tanh, silu, relu",
    "initialization": "normal, gpt2, truncated_normal",
}


@pytest.mark.parametrize(("field", "choices"), CHOICES.items(), ids=CHOICES)
@pytest.mark.parametrize("value", ["other", "", None, 1])
def test_a_choice_must_be_one_of_those_listed(field: str, choices: str, value: object) -> None:
    with refuse(f"{field} must be one of {choices}, got {value!r}"):
        DecoderConfig(**REQUIRED, **{field: value})


@pytest.mark.parametrize(
    "field", ["norm_bias", "attention_bias", "attention_out_bias", "feed_forward_bias", "tie_embeddings"]
)
@pytest.mark.parametrize("value", [0, 1, "yes"])
def test_a_flag_must_be_a_boolean(field: str, value: object) -> None:
    with refuse(f"{field} must be True or False, got {value!r}"):
        DecoderConfig(**REQUIRED, **{field: value})


NUMBERS = {
    "norm_eps": (
        "greater than 0",
        [-1e-9, 0, 0.0, float("nan"), float("inf"), "1e-5", True, None],
        [1e-5, 1],
    ),
    "rope_theta": (
        "greater than 0",
        [0, 0.0, -1.0, float("nan"), float("inf"), "1", False, None],
        [1, 0.5, 1e6],
    ),
    "dropout": ("at least 0 and less than 1", [-0.1, 1, 1.0, float("nan"), "0", True, None], [0, 0.0, 0.999]),
}


@pytest.mark.parametrize(
    ("field", "wanted", "value"), [(f, w, v) for f, (w, bad, _) in NUMBERS.items() for v in bad]
)
def test_a_number_out_of_range_is_refused(field: str, wanted: str, value: object) -> None:
    with refuse(f"{field} must be a finite number {wanted}, got {value!r}"):
        DecoderConfig(**REQUIRED, **{field: value})


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, (_, _, good) in NUMBERS.items() for v in good])
def test_a_number_at_the_edge_of_its_range_is_taken(field: str, value: float) -> None:
    assert getattr(DecoderConfig(**REQUIRED, **{field: value}), field) == value


COMBINATIONS = {
    "KV heads that do not divide": (
        {"n_kv_heads": 4},
        "n_kv_heads must divide n_heads = 6 so that each KV head serves equally many query heads, got n_kv_heads = 4",
    ),
    "more KV heads than heads": (
        {"n_kv_heads": 12},
        "n_kv_heads must divide n_heads = 6 so that each KV head serves equally many query heads, got n_kv_heads = 12",
    ),
    "heads that do not divide the width": (
        {"d_model": 25},
        "d_model must be a multiple of n_heads, or head_dim given, got d_model = 25 and n_heads = 6",
    ),
    "odd heads under RoPE": (
        {"head_dim": 5},
        "head_dim must be even when position is 'rope', which rotates pairs, got head_dim = 5",
    ),
    "a bias for RMSNorm": (
        {"norm": "rmsnorm", "norm_bias": True},
        "norm_bias must be False when norm is 'rmsnorm', which has no bias, got True",
    ),
}


@pytest.mark.parametrize(("changes", "message"), COMBINATIONS.values(), ids=COMBINATIONS)
def test_fields_that_do_not_go_together_are_refused(changes: dict, message: str) -> None:
    with refuse(message):
        DecoderConfig(**{**REQUIRED, **changes})


def test_what_the_refused_combinations_border_on_is_taken() -> None:
    """Excludes checks that refuse too much."""
    assert DecoderConfig(**{**REQUIRED, "d_model": 25}, head_dim=4).head_dim == 4
    assert DecoderConfig(**REQUIRED, head_dim=5, position="learned").head_dim == 5
    assert DecoderConfig(**REQUIRED, norm="rmsnorm", norm_bias=False).norm_bias is False


def test_errors_are_of_our_tree_and_value_errors() -> None:
    assert issubclass(ConfigError, ProofLMError)
    assert issubclass(ConfigError, ValueError)


def test_derived_fields_hold_their_derived_values() -> None:
    config = DecoderConfig(**REQUIRED)
    assert (config.n_kv_heads, config.head_dim, config.norm_bias) == (6, 4, True)
    assert (config.kv_heads, config.head_width, config.group_size) == (6, 4, 1)
    assert DecoderConfig(**REQUIRED, norm="rmsnorm").norm_bias is False
    assert SMALL.group_size == 2


def test_the_defaults_are_the_chapters() -> None:
    """Every default, written out from shared/design.md."""
    assert {
        name: value for name, value in DecoderConfig(**REQUIRED).to_dict().items() if name not in REQUIRED
    } == {
        "n_kv_heads": 6,
        "head_dim": 4,
        "norm": "layernorm",
        "norm_eps": 1e-5,
        "norm_bias": True,
        "position": "rope",
        "rope_theta": 10000.0,
        "rope_layout": "interleaved",
        "sliding_window": None,
        "feed_forward": "mlp",
        "activation": "gelu",
        "attention_bias": True,
        "attention_out_bias": True,
        "feed_forward_bias": True,
        "tie_embeddings": True,
        "dropout": 0.0,
        "initialization": "normal",
    }


def test_with_lets_derived_fields_follow_and_keeps_chosen_ones() -> None:
    derived = DecoderConfig(**REQUIRED)
    assert derived.with_(n_heads=12).n_kv_heads == 12
    assert derived.with_(n_heads=12).head_dim == 2
    assert derived.with_(d_model=36).head_dim == 6
    assert derived.with_(norm="rmsnorm").norm_bias is False
    assert derived.with_(norm="rmsnorm").with_(norm="layernorm") == derived
    assert derived.with_(n_heads=12, head_dim=8).head_dim == 8
    chosen = DecoderConfig(**REQUIRED, n_kv_heads=2, head_dim=10, norm_bias=False)
    assert chosen.with_(n_heads=12) == dataclasses.replace(chosen, n_heads=12)
    assert (chosen.with_(n_heads=12).n_kv_heads, chosen.with_(d_model=25).head_dim) == (2, 10)
    assert chosen.with_(norm_eps=1e-6).norm_bias is False


def test_replace_keeps_every_other_field() -> None:
    replaced = dataclasses.replace(DecoderConfig(**REQUIRED), n_heads=12)
    assert (replaced.n_kv_heads, replaced.head_dim) == (6, 4)


def test_a_change_is_validated_and_leaves_the_original_alone() -> None:
    before = SMALL.to_dict()
    with refuse("dropout must be a finite number at least 0 and less than 1, got 2"):
        SMALL.with_(dropout=2)
    with pytest.raises(ConfigError):
        dataclasses.replace(SMALL, n_kv_heads=4)
    with refuse(f"unknown config field heads, width; the fields are {FIELDS}"):
        SMALL.with_(width=3, heads=2)
    assert SMALL.to_dict() == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.dropout = 0.5


def test_positional_fields_are_refused() -> None:
    """Excludes six integers in an order that nobody can check."""
    with pytest.raises(TypeError, match="positional"):
        DecoderConfig(31, 29, 2, 24, 6, 37)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_json_dict_copy_and_pickle_give_an_equal_config_back(config: DecoderConfig) -> None:
    restored = [
        DecoderConfig.from_json(config.to_json()),
        DecoderConfig.from_dict(config.to_dict()),
        copy.deepcopy(config),
        pickle.loads(pickle.dumps(config)),
        config.with_(),
    ]
    for other in restored:
        assert other == config
        assert hash(other) == hash(config)
    assert list(json.loads(config.to_json())) == FIELDS.split(", ")


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(DecoderConfig)])
def test_a_config_that_differs_in_one_field_is_another(field: str) -> None:
    """Excludes a field left out of the comparison, the hash or the JSON."""
    others = {
        "norm": "rmsnorm",
        "position": "learned",
        "rope_layout": "half",
        "feed_forward": "gated",
        "activation": "silu",
        "initialization": "gpt2",
        "norm_eps": 0.5,
        "rope_theta": 7.0,
        "dropout": 0.5,
        "n_heads": 12,
        "n_kv_heads": 2,
        "sliding_window": 3,
    }
    base = DecoderConfig(**{**REQUIRED, "head_dim": 4, "n_kv_heads": 3, "norm_bias": False})
    value = getattr(base, field)
    other = others.get(field, not value if isinstance(value, bool) else None)
    changed = dataclasses.replace(base, **{field: 2 * value if other is None else other})
    assert changed != base
    assert hash(changed) != hash(base)
    assert changed.to_json() != base.to_json()
    assert len({base, changed, DecoderConfig.from_json(changed.to_json())}) == 2


def test_text_that_is_no_config_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^config is not JSON: Expecting .*line 1 column 1"):
        DecoderConfig.from_json("vocab_size = 3")
    for text, name in (("[1]", "list"), ("3", "int"), ("null", "NoneType")):
        with refuse(f"a config must be a JSON object, got {name}"):
            DecoderConfig.from_json(text)
    with refuse("config lacks n_layers, d_ff"):
        DecoderConfig.from_dict(
            {name: REQUIRED[name] for name in REQUIRED if name not in ("n_layers", "d_ff")}
        )
    with refuse(f"unknown config field heads; the fields are {FIELDS}"):
        DecoderConfig.from_dict({**REQUIRED, "heads": 2})
    with refuse("n_layers must be a positive integer, got 2.0"):
        DecoderConfig.from_json(json.dumps({**REQUIRED, "n_layers": 2.0}))
    with refuse("norm_eps must be a finite number greater than 0, got nan"):
        DecoderConfig.from_json(json.dumps({**REQUIRED, "norm_eps": float("nan")}))
