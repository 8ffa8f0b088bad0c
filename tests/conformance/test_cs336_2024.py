"""The public model tests of CS336 assignment 1, 2024 edition: its inputs, weights, outputs and tolerances.

Its AdamW file is left out: the optimizer is PyTorch's own, so it would test nothing of ours.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.cs336 import EDITION_2024, assert_within, config_2024, folder, our_names
from proof_lm.functional import attention, gelu, mlp, rms_norm
from proof_lm.model import ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.model.block import Block
from tolerances import CS336_COMPONENT, CS336_MODEL

BLOCK_CONFIG = config_2024(
    vocab_size=100, context_length=128, n_layers=1, d_model=64, n_heads=2, d_ff=256
).with_(position="none")
MODEL_CONFIG = config_2024(vocab_size=100, context_length=64, n_layers=2, d_model=128, n_heads=2, d_ff=512)
every_backend = pytest.mark.parametrize("backend", ["explicit", "fused"])


def load(name: str) -> Any:
    return torch.load(folder("cs336-2024") / f"{name}.pt", weights_only=True)


def assert_not_within(wrong: Tensor, expected: Tensor, tolerance: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        assert_within(wrong, expected, tolerance)


def test_gelu_is_that_of_the_handout() -> None:
    """Two of the values printed in test_gelu of the public tests."""
    values = gelu(torch.tensor([0.2352, 0.9259]))
    assert_within(values, torch.tensor([0.13946731388568878, 0.7617851495742798]), CS336_COMPONENT)


def test_rmsnorm() -> None:
    inputs, weight = load("in_features"), load("rmsnorm_weights")["weight"]
    expected = load("rmsnorm_expected_output")
    assert_within(rms_norm(inputs, weight, 1e-5), expected, CS336_COMPONENT)
    assert_not_within(rms_norm(inputs, weight, 1e-3), expected, CS336_COMPONENT)


def test_positionwise_feedforward() -> None:
    inputs, weights = load("in_features"), load("positionwise_feedforward_weights")
    up, down = (weights["w1.weight"], None), (weights["w2.weight"], None)
    expected = load("positionwise_feedforward_expected_output")
    assert_within(mlp(inputs, up, down, "gelu"), expected, CS336_COMPONENT)
    assert_not_within(mlp(inputs, up, down, "gelu_tanh"), expected, CS336_COMPONENT)


@every_backend
def test_scaled_dot_product_attention(backend: str) -> None:
    """In this file True means hidden, and what is hidden is the future: our causal triangle must say the same."""
    queries, keys, values = (load(f"scaled_dot_product_attention_{name}") for name in "QKV")
    hidden = load("scaled_dot_product_attention_mask")[None, None]
    expected = load("scaled_dot_product_attention_expected_output")
    ours = attention(queries, keys, values, mask=~hidden, causal=False, backend=backend)
    assert_within(ours, expected, CS336_COMPONENT)
    assert_within(attention(queries, keys, values, backend=backend), expected, CS336_COMPONENT)
    inverted = attention(queries, keys, values, mask=hidden, causal=False, backend=backend)
    assert_not_within(inverted, expected, CS336_COMPONENT)


@every_backend
def test_multihead_self_attention(backend: str) -> None:
    """The file has one matrix a head; ours are these one below the other."""
    weights, inputs = load("unbatched_multihead_self_attention_weights"), load("in_features")
    expected = load("unbatched_multihead_self_attention_expected_output")
    layer = Attention(BLOCK_CONFIG)

    def output(order: list[int]) -> Tensor:
        state = {
            f"{ours}.weight": torch.cat([weights[f"{theirs}_heads.{head}.weight"] for head in order])
            for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"))
        }
        layer.load_state_dict({**state, "out.weight": weights["output_proj.weight"]})
        return layer(inputs, AttentionContext(backend))

    assert_within(output([0, 1]), expected, CS336_COMPONENT)
    assert_not_within(output([1, 0]), expected, CS336_COMPONENT)


@every_backend
def test_transformer_block(backend: str) -> None:
    block = Block(BLOCK_CONFIG)
    block.load_state_dict(our_names(load("transformer_block_weights"), EDITION_2024))
    expected, inputs = load("transformer_block_expected_output"), load("in_features")
    assert_within(block(inputs, AttentionContext(backend)), expected, CS336_COMPONENT)
    assert_not_within(block(inputs, AttentionContext(backend)) - inputs, expected, CS336_COMPONENT)


def lm(backend: str) -> ProofLM:
    model = ProofLM(MODEL_CONFIG, attention_backend=backend).requires_grad_(False)
    model.load_state_dict(our_names(load("transformer_lm_weights"), EDITION_2024))
    return model


@every_backend
@pytest.mark.parametrize("truncated", [False, True], ids=["whole", "truncated"])
def test_transformer_lm(truncated: bool, backend: str) -> None:
    model = lm(backend)
    middle = "_truncated" if truncated else ""
    expected = load(f"transformer_lm{middle}_expected_output")
    assert_within(model(load(f"in_indices{middle}"))[0], expected, CS336_MODEL)
    assert_not_within(model(load(f"in_indices{middle}").flip(0))[0], expected, CS336_MODEL)


@every_backend
def test_the_truncated_input_is_truncated(backend: str) -> None:
    """Shorter than the context, with answers of its own; tokens put behind it leave these answers as they are."""
    whole, truncated = load("in_indices"), load("in_indices_truncated")
    expected = load("transformer_lm_truncated_expected_output")
    assert whole.shape == (8, 64)
    assert truncated.shape == (8, 60)
    assert_not_within(load("transformer_lm_expected_output")[:, :60], expected, CS336_MODEL)
    longer = torch.cat([truncated, whole[:, 60:]], dim=1)
    assert_within(lm(backend)(longer)[0][:, :60], expected, CS336_MODEL)
