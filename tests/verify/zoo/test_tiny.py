"""Classes of transformers made small."""

import pytest
import torch

from proof_lm.errors import TargetError
from proof_lm.verify.zoo import causal_classes, initial, require_class, tiny
from proof_lm.verify.zoo.shrink import SIZES, shrunk

transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' own


def test_the_classes_are_those_that_transformers_loads_as_causal_language_models() -> None:
    classes = causal_classes()
    assert {"LlamaForCausalLM", "GPT2LMHeadModel", "MixtralForCausalLM"} <= set(classes)
    assert len(classes) == len(set(classes))


@pytest.mark.parametrize(
    "name", ["LlamaForCausalLM", "GPT2LMHeadModel", "OPTForCausalLM", "MixtralForCausalLM"]
)
def test_a_class_is_small_and_gives_logits_for_its_whole_context(name: str) -> None:
    model = tiny(name, 0)
    assert type(model).__name__ == name
    assert sum(parameter.numel() for parameter in model.parameters()) < 200_000
    with torch.no_grad():
        logits = model(torch.zeros(2, 29, dtype=torch.int64)).logits
    assert logits.shape == (2, 29, 31)
    assert logits.isfinite().all()


def test_faults_show_on_the_weights_since_none_is_what_a_missing_one_would_be() -> None:
    model = tiny("GPT2LMHeadModel", 3)
    for name, parameter in model.named_parameters():
        assert parameter.std() > 0.05, name
        assert not (parameter == 0.0).any(), name
        assert not (parameter == 1.0).any(), name
    again, other = tiny("GPT2LMHeadModel", 3), tiny("GPT2LMHeadModel", 4)
    key = "transformer.h.1.attn.c_attn.weight"
    assert torch.equal(model.get_parameter(key), again.get_parameter(key))
    assert not torch.equal(model.get_parameter(key), other.get_parameter(key))


def test_what_is_made_anew_has_the_initial_values_of_its_author() -> None:
    norm = initial("LlamaForCausalLM").get_parameter("model.norm.weight")
    assert torch.equal(norm, torch.ones_like(norm))


def test_sizes_are_told_apart() -> None:
    config = shrunk(transformers.LlamaConfig)
    sizes = [
        config.vocab_size,
        config.max_position_embeddings,
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.num_hidden_layers,
    ]
    assert len(set(sizes)) == len(sizes)
    assert config.bos_token_id is config.eos_token_id is config.pad_token_id is None


def test_each_kind_of_layer_is_there_once() -> None:
    assert shrunk(transformers.Gemma2Config).layer_types == ["sliding_attention", "full_attention"]
    config = shrunk(transformers.Gemma3TextConfig)  # by default one layer in six sees the whole row
    assert config.layer_types == ["sliding_attention", "full_attention"]
    assert config.num_hidden_layers == 2
    assert config.sliding_window == SIZES["sliding_window"] == 5


def test_nested_configs_are_small_too_and_overrides_go_over_all() -> None:
    config = shrunk(transformers.Gemma3Config, {"text_config": {"hidden_size": 24}})
    assert config.text_config.hidden_size == 24
    assert config.text_config.vocab_size == SIZES["vocab_size"]
    assert config.vision_config.num_hidden_layers == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("LLamaForCausalML", "'LLamaForCausalML' among its .*; near it are LlamaForCausalLM"),
        ("BertForMaskedLM", "no causal language model 'BertForMaskedLM'"),
        ("", "none has a similar name"),
    ],
)
def test_an_unknown_class_is_answered_with_near_names(name: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        require_class(name)


def test_a_class_that_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no such size")

    monkeypatch.setattr(transformers.LlamaForCausalLM, "__init__", refuse)
    with pytest.raises(
        TargetError, match="a small LlamaForCausalLM cannot be made: ValueError: no such size"
    ):
        tiny("LlamaForCausalLM", 0)
