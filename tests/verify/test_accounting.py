"""The sheet equals what a decoder does, over every pair of values of the enumerated fields; and is caught where not."""

from typing import Any

import pytest
import torch

from model.covering import covering_sample
from proof_lm.config import DecoderConfig
from proof_lm.errors import ConfigError
from proof_lm.model import ProofLM
from proof_lm.presets import preset
from proof_lm.sheet import Sheet
from proof_lm.verify import ProofSubject, Verdict, randomized, verify
from proof_lm.verify.accounting import check_sheet, compare_activations
from proof_lm.verify.contracts.accounting import ACTIVATION_MEMORY, FLOPS, PARAMETER_COUNT, TENSOR_SHAPES
from proof_lm.verify.meter import Meter, read_step

CONTRACTS = (PARAMETER_COUNT, TENSOR_SHAPES, FLOPS, ACTIVATION_MEMORY)
SIZES = {
    "vocab_size": 31,
    "context_length": 29,
    "n_layers": 2,
    "d_model": 26,
    "n_heads": 6,
    "d_ff": 37,
    "head_dim": 10,
}
FIELDS: dict[str, list[Any]] = {
    "norm": ["layernorm", "rmsnorm"],
    "position": ["rope", "learned", "none"],
    "rope_layout": ["interleaved", "half"],
    "feed_forward": ["mlp", "gated"],
    "activation": ["gelu", "gelu_tanh", "silu", "relu"],
    "n_kv_heads": [6, 3, 1],
    "attention_bias": [True, False],
    "attention_out_bias": [True, False],
    "feed_forward_bias": [True, False],
    "tie_embeddings": [True, False],
    "sliding_window": [None, 7],
    "dropout": [0.0, 0.1],
    "dtype": ["float32", "bfloat16"],
}
SAMPLE = covering_sample(FIELDS)


@pytest.mark.parametrize("fields", SAMPLE, ids=range(len(SAMPLE)))
def test_every_number_is_what_the_decoder_does(fields: dict[str, Any]) -> None:
    rest = {name: value for name, value in fields.items() if name != "dtype"}
    sheet = Sheet("sample", DecoderConfig(**SIZES, **rest), 5, 19, fields["dtype"])
    found = list(check_sheet(sheet))
    assert [one for one in found if one.measured] == []
    assert {one.path for one in found} == {"-", "explicit", "in small", "fused, in small"}


def test_a_large_decoder_is_checked_without_memory_for_it() -> None:
    config = preset("llama-3.1-8b").with_(n_layers=2)
    assert [one for one in check_sheet(Sheet("wide", config, 2, 4096, "bfloat16")) if one.measured] == []


def test_one_head_is_merged_without_a_copy() -> None:
    config = DecoderConfig(**{**SIZES, "n_heads": 1, "head_dim": 26})
    found = [one for one in check_sheet(Sheet("one head", config, 5, 19)) if one.measured]
    assert found == []
    model = randomized(config, 0)
    model.attention_backend = "fused"
    assert list(compare_activations(Sheet("one head", config, 5, 19), model, "fused"))[1].measured == 0


def test_contracts_of_accounting_are_not_for_a_subclass_that_may_compute_otherwise() -> None:
    class Other(ProofLM):
        """Nothing else, as far as anybody can see."""

    torch.manual_seed(0)
    results = verify(ProofSubject("other", Other(preset("chapter"))), CONTRACTS).results
    assert [result.verdict for result in results] == [Verdict.HOLDS, *3 * [Verdict.NOT_APPLICABLE]]
    assert "Other may compute otherwise" in results[1].reason


@pytest.mark.parametrize(
    "change", [{"context_length": 1}, {"vocab_size": 1}, {"head_dim": 2, "n_kv_heads": 6}]
)
def test_sizes_of_one_are_not_accused(change: dict[str, int]) -> None:
    config = DecoderConfig(**{**SIZES, **change})
    results = verify(ProofSubject("small", randomized(config, 0)), (TENSOR_SHAPES, FLOPS)).results
    assert {result.verdict for result in results} == {Verdict.NOT_APPLICABLE}
    with pytest.raises(ConfigError, match=r"cannot be checked: with .* = 1"):
        list(check_sheet(Sheet("small", config, 2, min(3, config.context_length))))


def test_reading_a_step_leaves_the_decoder_as_it_was() -> None:
    model = randomized(DecoderConfig(**SIZES, dropout=0.1), 0).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    read_step(model, 2, 5, training=False, recomputed=True)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all("forward" not in vars(block) for block in model.blocks)


def test_the_meter_counts_products_biases_and_functions_by_their_definition() -> None:
    a, b, c = torch.ones(5, 3), torch.ones(3, 7), torch.ones(7)
    with Meter((5, 1)) as meter:
        torch.addmm(c, a, b).exp() * 2
        a.sum(-1)
        torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5))
        (a > 0).all()
        a.reshape(3, 5).t().contiguous()
    counted = [(step.name, step.product, step.others) for step in meter.steps if step.product or step.others]
    assert counted == [
        ("addmm", (5, 3, 7), 35),
        ("exp", None, 35),
        ("mul", None, 35),
        ("sum", None, 15),
        ("bmm", (6, 4, 5), 0),
    ]
