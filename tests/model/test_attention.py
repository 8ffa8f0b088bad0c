"""The attention layer against the oracle's loop over heads: output, input gradient, every projection's gradient."""

import numpy as np
import pytest
import torch

from model.random_decoder import BACKENDS, random_decoder
from proof_lm.config import DecoderConfig
from proof_lm.functional import rope_rotation
from proof_lm.model.attention import AttentionContext
from proof_lm.oracle import attention_backward, attention_forward
from sizes import BATCH, HEAD_CONFIGS, SMALL, TIME
from tolerances import attention_layer_chain, largest, rounding

SCOPE = "blocks.0.attention."
CONFIGS = {
    **HEAD_CONFIGS,
    "rope in halves": SMALL.with_(rope_layout="half", rope_theta=50.0),
    "no position": SMALL.with_(position="none"),
    "no biases": SMALL.with_(attention_bias=False, attention_out_bias=False),
    "heads wider than the model": SMALL.with_(head_dim=10),
}


def oracle(config: DecoderConfig, parameters: dict, hidden, real, position_ids, upstream) -> tuple:
    visible = np.tri(TIME, dtype=bool) & real[:, None, :]
    output, trace = attention_forward(config, parameters, hidden, visible=visible, position_ids=position_ids)
    grad_hidden, gradients = attention_backward(config, parameters, upstream, trace)
    return output, {"hidden": grad_hidden, **gradients}


def draw(config: DecoderConfig) -> tuple[np.ndarray, ...]:
    """Hidden states, which tokens are real (padding on both sides), positions out of step, an upstream gradient."""
    rng = np.random.default_rng(3)
    hidden, upstream = rng.standard_normal((2, BATCH, TIME, config.d_model))
    real = np.ones((BATCH, TIME), dtype=bool)
    real[1, :4], real[2, 9:] = False, False
    return hidden, real, rng.integers(0, config.context_length, (BATCH, TIME)), upstream


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_output_and_every_gradient_are_the_oracles(config: DecoderConfig, backend: str, padded: bool) -> None:
    """Excludes every fault that moves a number: KV map, scale, mask, layout, heads merged out of order."""
    model, weights = random_decoder(config)
    layer = model.blocks[0].attention
    parameters = {
        name.removeprefix(SCOPE): array for name, array in weights.items() if name.startswith(SCOPE)
    }
    hidden, real, position_ids, upstream = draw(config)
    real = real if padded else np.ones_like(real)
    expected, gradients = oracle(config, parameters, hidden, real, position_ids, upstream)

    rotation = None
    if config.position == "rope":
        rotation = rope_rotation(
            torch.from_numpy(position_ids),
            config.head_dim,
            config.rope_theta,
            config.rope_layout,
            torch.float64,
        )
    mask = torch.from_numpy(real)[:, None, None, :] if padded else None
    states = torch.from_numpy(hidden).requires_grad_()
    output = layer(states, AttentionContext(backend, mask, rotation))
    output.backward(torch.from_numpy(upstream))
    measured = {"hidden": states.grad, **{name: p.grad for name, p in layer.named_parameters()}}

    assert set(measured) == set(gradients)
    bound = rounding(attention_layer_chain(config, TIME), largest(expected, *gradients.values()))
    assert np.abs(output.detach().numpy() - expected).max() <= bound
    for name, gradient in gradients.items():
        assert np.abs(measured[name].numpy() - gradient).max() <= bound, name
        # A key's bias adds the same to all scores of a query, unless a rotation comes between.
        if name != "key.bias" or config.position == "rope":
            assert np.abs(gradient).max() > 1e6 * bound, f"{name}: too flat to tell"


def test_a_tiled_kv_map_is_told_apart() -> None:
    """With query head h reading KV head h mod K, output and gradients leave the bound by far."""
    config = HEAD_CONFIGS["gqa"]
    _, weights = random_decoder(config)
    parameters = {
        name.removeprefix(SCOPE): array for name, array in weights.items() if name.startswith(SCOPE)
    }
    hidden, real, position_ids, upstream = draw(config)
    right, right_gradients = oracle(config, parameters, hidden, real, position_ids, upstream)
    tiled = np.argsort([head % config.n_kv_heads for head in range(config.n_heads)], kind="stable")
    rows = (tiled[:, None] * config.head_dim + np.arange(config.head_dim)).ravel()
    wrong = dict(parameters)
    for name in ("query.weight", "query.bias"):
        wrong[name] = parameters[name][rows]
    wrong["out.weight"] = parameters["out.weight"][:, rows]
    output, gradients = oracle(config, wrong, hidden, real, position_ids, upstream)
    bound = rounding(attention_layer_chain(config, TIME), largest(right, *right_gradients.values()))
    assert np.abs(output - right).max() > 1e6 * bound
    assert np.abs(gradients["value.weight"] - right_gradients["value.weight"]).max() > 1e6 * bound
