"""The public model tests of CS336 assignment 1, 2025 edition.

Without the assignment only those whose inputs are seeded can run. With a checkout at hand,
``CS336_ASSIGNMENT1=DIR`` runs the others too, against the files in it (tests/_snapshots, tests/fixtures/ts_tests).
AdamW is left out: the optimizer is PyTorch's own.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from conformance.cs336 import EDITION_2025, assert_within, config_2025, folder, our_names
from proof_lm.functional import attention, embedding, linear, rms_norm, rope_rotation, rotate
from proof_lm.model import ProofLM
from proof_lm.model.attention import AttentionContext
from tolerances import CS336_COMPONENT, CS336_MODEL

BATCH, QUERIES, KEYS, WIDTH = 4, 12, 16, 64
LOOSE = {"rtol": 1e-4, "atol": 1e-2}  # the default of the public tests
SWIGLU = {"rtol": 1e-4, "atol": 1e-5}
COMPONENT = {"rtol": 1e-4, "atol": 1e-6}
MODEL = {"rtol": 1e-2, "atol": 1e-4}
every_backend = pytest.mark.parametrize("backend", ["explicit", "fused"])


def seeded(seed: int, *size: int) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(size)


def expected(name: str) -> np.ndarray:
    return np.load(folder("cs336-2025") / f"{name}.npz")["array"]


def hidden_states() -> Tensor:
    return seeded(4, BATCH, QUERIES, WIDTH)


def token_ids() -> Tensor:
    torch.manual_seed(6)
    return torch.randint(0, 10_000, (BATCH, QUERIES))


def queries_keys_values_mask() -> tuple[Tensor, ...]:
    queries, keys, values = (
        seeded(seed, BATCH, length, WIDTH) for seed, length in ((1, QUERIES), (2, KEYS), (3, KEYS))
    )
    return queries, keys, values, seeded(5, BATCH, QUERIES, KEYS) > 0.5


def positions() -> Tensor:
    return torch.arange(QUERIES).expand(BATCH, QUERIES)


@every_backend
@pytest.mark.parametrize(
    ("name", "heads"), [("test_scaled_dot_product_attention", 1), ("test_4d_scaled_dot_product_attention", 2)]
)
def test_scaled_dot_product_attention(name: str, heads: int, backend: str) -> None:
    """In four dimensions pairs of rows are two heads of one row, with a mask of their own."""
    inputs = [tensor.unflatten(0, (-1, heads)) for tensor in queries_keys_values_mask()]
    queries, keys, values, mask = inputs
    ours = attention(queries, keys, values, mask=mask, causal=False, backend=backend)
    assert_within(ours.reshape(expected(name).shape), expected(name), CS336_COMPONENT)
    inverted = attention(queries, keys, values, mask=~mask, causal=False, backend=backend)
    with pytest.raises(AssertionError):
        assert_within(inverted.reshape(expected(name).shape), expected(name), CS336_COMPONENT)


def test_rope() -> None:
    states = hidden_states()[:, None]
    ours = rotate(states, rope_rotation(positions(), WIDTH, 10000.0, "interleaved", torch.float32))
    assert_within(ours[:, 0], expected("test_rope"), CS336_COMPONENT)
    other_layout = rotate(states, rope_rotation(positions(), WIDTH, 10000.0, "half", torch.float32))
    with pytest.raises(AssertionError):
        assert_within(other_layout[:, 0], expected("test_rope"), CS336_COMPONENT)


@pytest.fixture
def checkout() -> Path:
    """The tests folder of the assignment."""
    directory = os.environ.get("CS336_ASSIGNMENT1")
    if not directory:
        pytest.skip("set CS336_ASSIGNMENT1 to a checkout of stanford-cs336/assignment1-basics to run this")
    return Path(directory) / "tests"


@pytest.fixture
def weights(checkout: Path) -> dict[str, Tensor]:
    state = torch.load(checkout / "fixtures" / "ts_tests" / "model.pt", map_location="cpu", weights_only=True)
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in state.items()}


@pytest.fixture
def model(checkout: Path, weights: dict[str, Tensor]) -> ProofLM:
    given = json.loads((checkout / "fixtures" / "ts_tests" / "model_config.json").read_text())
    config = config_2025(
        vocab_size=given["vocab_size"],
        context_length=given["context_length"],
        n_layers=given["num_layers"],
        d_model=given["d_model"],
        n_heads=given["num_heads"],
        d_ff=given["d_ff"],
    )
    assert given["rope_theta"] == config.rope_theta
    model = ProofLM(config)
    model.load_state_dict(our_names(weights, EDITION_2025))
    return model.eval()


def snapshot(checkout: Path, name: str) -> np.ndarray:
    return np.load(checkout / "_snapshots" / f"{name}.npz")["array"]


def test_linear_and_embedding_of_the_checkout(checkout: Path, weights: dict[str, Tensor]) -> None:
    up = linear(hidden_states(), weights["layers.0.ffn.w1.weight"])
    assert_within(up, snapshot(checkout, "test_linear"), LOOSE)
    rows = embedding(token_ids(), weights["token_embeddings.weight"])
    assert_within(rows, snapshot(checkout, "test_embedding"), LOOSE)


def test_rmsnorm_of_the_checkout(checkout: Path, weights: dict[str, Tensor]) -> None:
    normed = rms_norm(hidden_states(), weights["layers.1.ln1.weight"], 1e-5)
    assert_within(normed, snapshot(checkout, "test_rmsnorm"), COMPONENT)


def test_swiglu_of_the_checkout(checkout: Path, model: ProofLM) -> None:
    fed = model.blocks[0].feed_forward(hidden_states())
    assert_within(fed, snapshot(checkout, "test_swiglu"), SWIGLU)


@every_backend
def test_multihead_self_attention_of_the_checkout(checkout: Path, model: ProofLM, backend: str) -> None:
    layer, rotation = model.blocks[0].attention, model.context(positions(), None).rotation
    plain = layer(hidden_states(), AttentionContext(backend))
    assert_within(plain, snapshot(checkout, "test_multihead_self_attention"), COMPONENT)
    rotated = layer(hidden_states(), AttentionContext(backend, rotation=rotation))
    assert_within(rotated, snapshot(checkout, "test_multihead_self_attention_with_rope"), COMPONENT)


@every_backend
def test_transformer_block_of_the_checkout(checkout: Path, model: ProofLM, backend: str) -> None:
    model.attention_backend = backend
    output = model.blocks[0](hidden_states(), model.context(positions(), None))
    assert_within(output, snapshot(checkout, "test_transformer_block"), COMPONENT)


@every_backend
def test_transformer_lm_of_the_checkout(checkout: Path, model: ProofLM, backend: str) -> None:
    """Half of the ids give half of the logits. The stored 'truncated' answer is the whole one once more."""
    model.attention_backend = backend
    whole = snapshot(checkout, "test_transformer_lm")
    assert_within(model(token_ids())[0], whole, MODEL)
    truncated = model(token_ids()[:, : QUERIES // 2])[0]
    assert_within(truncated, whole[:, : QUERIES // 2], {**MODEL, "atol": CS336_MODEL["atol"]})
