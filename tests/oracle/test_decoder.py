"""The decoder's forward pass and gradient against autograd, and the gradient against differences."""

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf

from oracle.cases import BASE, CONFIGS, Inputs, random_inputs, random_weights
from oracle.torch_peer import peer_forward
from proof_lm.config import DecoderConfig
from proof_lm.errors import InputError, WeightsError
from proof_lm.oracle import central_difference, decoder_backward, decoder_forward, parameter_shapes

# float64 rounding, 2.2e-16, through some 1e3 operations on values of order 1 to 10.
PEER = {"rtol": 1e-11, "atol": 1e-12}
# eps |loss| / h = 1.5e-10 of rounding for a loss near 4, times the passes' own; h^2 |f'''| / 6 is less.
DIFFERENCE = 1e-8

every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def forward(config: DecoderConfig, weights: dict[str, np.ndarray], inputs: Inputs):
    return decoder_forward(
        config,
        weights,
        inputs.token_ids,
        inputs.labels,
        inputs.loss_mask,
        padding_mask=inputs.padding_mask,
    )


@every_config
def test_gradient_is_the_central_difference_for_every_parameter(config: DecoderConfig) -> None:
    # One block, to save time: that gradients pass through several is what "defaults" keeps to.
    config = config if config == BASE else config.with_(n_layers=1)
    weights, inputs = random_weights(config), random_inputs(config)
    gradients = decoder_backward(config, weights, forward(config, weights, inputs))
    rng = np.random.default_rng(2)
    for name, parameter in weights.items():
        gradient = gradients[name]
        steepest = np.unravel_index(np.argmax(np.abs(gradient)), gradient.shape)
        indices = [steepest, tuple(int(rng.integers(n)) for n in gradient.shape)]
        measured = central_difference(lambda _: forward(config, weights, inputs).loss, parameter, indices)
        np.testing.assert_allclose(
            measured, [gradient[i] for i in indices], rtol=1e-7, atol=DIFFERENCE, err_msg=name
        )
        # A key's bias adds the same to all scores of a query, unless a rotation comes between.
        if name.endswith("key.bias") and config.position != "rope":
            assert np.abs(gradient).max() < 1e-15
        else:
            assert np.abs(gradient).max() > 1e4 * DIFFERENCE, f"{name}: too flat to tell"


@every_config
def test_forward_and_gradient_agree_with_autograd(config: DecoderConfig) -> None:
    weights, inputs = random_weights(config), random_inputs(config)
    trace = forward(config, weights, inputs)
    gradients = decoder_backward(config, weights, trace)

    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    positions = torch.tensor(
        [[0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 3, 3, 3]]
    )  # written out: the number of real tokens before and at the position, less 1, at least 0
    logits, hidden = peer_forward(
        config, tensors, torch.tensor(inputs.token_ids), torch.tensor(inputs.padding_mask), positions
    )
    loss = nnf.cross_entropy(logits.flatten(0, 1), torch.tensor(inputs.labels).flatten(), ignore_index=-100)
    loss.backward()
    np.testing.assert_allclose(trace.logits, logits.detach().numpy(), **PEER)
    np.testing.assert_allclose(trace.loss, loss.item(), **PEER)
    np.testing.assert_allclose(gradients["hidden"], hidden.grad.numpy(), **PEER)
    assert set(gradients) == {*weights, "hidden"}
    for name, tensor in tensors.items():
        np.testing.assert_allclose(gradients[name], tensor.grad.numpy(), **PEER, err_msg=name)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["defaults", "llama", "learned"])
def test_gradient_of_weighted_logits_with_explicit_positions(name: str, padded: bool) -> None:
    """The upstream gradient stands at the padding too, which no loss over real tokens reaches."""
    config = CONFIGS[name]
    weights, inputs = random_weights(config), random_inputs(config)
    positions = np.array([[4, 2, 9, 0, 11, 3, 3], [0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0]])
    upstream = np.random.default_rng(3).standard_normal((3, 7, 31))
    mask = inputs.padding_mask if padded else np.ones((3, 7), dtype=bool)
    trace = decoder_forward(
        config, weights, inputs.token_ids, padding_mask=mask if padded else None, position_ids=positions
    )
    assert trace.loss is None
    gradients = decoder_backward(config, weights, trace, grad_logits=upstream)

    tensors = {key: torch.tensor(array, requires_grad=True) for key, array in weights.items()}
    real = torch.tensor(mask)
    logits, hidden = peer_forward(
        config, tensors, torch.tensor(inputs.token_ids), real, torch.tensor(positions)
    )
    logits.backward(torch.tensor(upstream))
    np.testing.assert_allclose(trace.logits, logits.detach().numpy(), **PEER)
    np.testing.assert_allclose(gradients["hidden"], hidden.grad.numpy(), rtol=1e-10, atol=1e-11)
    for key, tensor in tensors.items():
        np.testing.assert_allclose(gradients[key], tensor.grad.numpy(), rtol=1e-10, atol=1e-11, err_msg=key)
    # Reach: the positions matter.
    elsewhere = decoder_forward(config, weights, inputs.token_ids)
    assert np.abs(elsewhere.logits - trace.logits).max() > 1e-3


def test_the_comparison_with_differences_rejects_a_gradient_off_by_a_thousandth() -> None:
    weights, inputs = random_weights(BASE), random_inputs(BASE)
    gradient = decoder_backward(BASE, weights, forward(BASE, weights, inputs))[
        "blocks.0.attention.key.weight"
    ]
    steepest = np.unravel_index(np.argmax(np.abs(gradient)), gradient.shape)
    measured = central_difference(
        lambda _: forward(BASE, weights, inputs).loss, weights["blocks.0.attention.key.weight"], [steepest]
    )
    assert abs(measured[0] - 1.001 * gradient[steepest]) > DIFFERENCE


def test_without_padding_positions_count_from_zero() -> None:
    weights, inputs = random_weights(BASE), random_inputs(BASE)
    default = decoder_forward(BASE, weights, inputs.token_ids)
    given = decoder_forward(BASE, weights, inputs.token_ids, position_ids=np.tile(np.arange(7), (3, 1)))
    assert np.array_equal(default.logits, given.logits)


@pytest.mark.parametrize("name", ["defaults", "llama", "learned", "nope"])
def test_padding_reaches_no_real_token_and_gets_no_gradient(name: str) -> None:
    config = CONFIGS[name].with_(tie_embeddings=False)
    weights, inputs = random_weights(config), random_inputs(config)
    pad = 30
    tokens = np.where(inputs.padding_mask, np.minimum(inputs.token_ids, 29), pad)
    real = inputs.padding_mask

    def run(stored: float):
        weights["embedding.weight"][pad] = stored
        trace = decoder_forward(config, weights, tokens, inputs.labels, inputs.loss_mask, padding_mask=real)
        return trace, decoder_backward(config, weights, trace)

    zero, of_zero = run(0.0)
    for stored in (np.nan, np.inf, 1e300):
        trace, gradients = run(stored)
        assert np.array_equal(trace.logits, zero.logits)
        assert trace.loss == zero.loss
        assert not gradients["embedding.weight"][pad].any()
        for key, gradient in gradients.items():
            assert np.array_equal(gradient, of_zero[key]), key
    # The same rows without their padding: positions and values are those of the short sequences.
    for row, kept in ((1, slice(2, 7)), (2, slice(0, 4))):
        alone = decoder_forward(config, weights, tokens[row : row + 1, kept])
        np.testing.assert_allclose(zero.logits[row, kept], alone.logits[0], **PEER)
    # Reach: shown as real tokens, the pads do move their row's later tokens.
    weights["embedding.weight"][pad] = 1.0
    shown = decoder_forward(config, weights, tokens)
    assert np.abs(shown.logits[1, 2:] - zero.logits[1, 2:]).max() > 1e-3


def test_a_row_of_padding_only_is_finite() -> None:
    weights, inputs = random_weights(BASE), random_inputs(BASE)
    real = inputs.padding_mask.copy()
    real[1] = False
    trace = decoder_forward(
        BASE, weights, inputs.token_ids, inputs.labels, inputs.loss_mask & real, padding_mask=real
    )
    assert np.isfinite(trace.logits).all()
    assert not trace.blocks[0].attention_trace.weights[1].any()
    for gradient in decoder_backward(BASE, weights, trace).values():
        assert np.isfinite(gradient).all()


def test_causality_and_its_reach() -> None:
    weights, inputs = random_weights(BASE), random_inputs(BASE)
    edited = inputs.token_ids.copy()
    edited[:, 4] = (edited[:, 4] + 1) % 31
    before, after = (decoder_forward(BASE, weights, ids).logits for ids in (inputs.token_ids, edited))
    np.testing.assert_allclose(before[:, :4], after[:, :4], **PEER)
    assert (np.abs(before - after)[:, 4:].max(axis=-1) > 1e-3).all()


def test_nothing_counted_is_loss_zero_and_zero_gradients() -> None:
    weights, inputs = random_weights(BASE), random_inputs(BASE)
    trace = decoder_forward(BASE, weights, inputs.token_ids, inputs.labels, np.zeros((3, 7), dtype=bool))
    assert trace.loss == 0.0
    assert not any(gradient.any() for gradient in decoder_backward(BASE, weights, trace).values())


def test_stages_name_the_first_component_that_differs() -> None:
    weights, inputs = random_weights(BASE), random_inputs(BASE)
    stages = decoder_forward(BASE, weights, inputs.token_ids).stages()
    assert list(stages) == [
        "hidden",
        *(
            f"blocks.{i}{part}"
            for i in range(2)
            for part in (".attention_norm", ".attention", ".feed_forward_norm", ".feed_forward", "")
        ),
        "final_norm",
        "logits",
    ]
    weights["blocks.1.attention.value.weight"] *= 1.01
    faulty = decoder_forward(BASE, weights, inputs.token_ids).stages()
    different = [name for name in stages if not np.array_equal(stages[name], faulty[name])]
    assert different[0] == "blocks.1.attention"


def test_weights_are_not_changed() -> None:
    weights, inputs = random_weights(BASE), random_inputs(BASE)
    before = {name: weight.copy() for name, weight in weights.items()}
    decoder_backward(BASE, weights, forward(BASE, weights, inputs))
    assert all(np.array_equal(before[name], weight) for name, weight in weights.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"token_ids": [1, 2, 3]}, r"token_ids must have shape \(B, T\), got \(3,\)"),
        ({"token_ids": [[1.0, 2.0]]}, "token_ids must hold integers, got dtype float64"),
        ({"token_ids": [[1, 31]]}, r"token_ids must lie in 0\.\.30, got 31"),
        ({"token_ids": [[-1, 3]]}, r"token_ids must lie in 0\.\.30, got -1"),
        ({"token_ids": [[1] * 14]}, "1 to context_length = 13 tokens a row, got 14"),
        ({"token_ids": np.zeros((2, 0), dtype=int)}, "got 0"),
        ({"labels": [[1, 2]]}, r"labels must have shape \(2, 3\), got \(1, 2\)"),
        ({"labels": [[1, 2, 31], [0, 0, 0]]}, r"labels must lie in 0\.\.30, got 31"),
        ({"loss_mask": [[True] * 3] * 2}, "loss_mask needs labels"),
        ({"labels": [[1] * 3] * 2, "loss_mask": [[1] * 3] * 2}, "loss_mask must be boolean, got dtype int64"),
        ({"padding_mask": [[1.0] * 3] * 2}, "padding_mask must be boolean, got dtype float64"),
        ({"padding_mask": [[True] * 2] * 2}, r"padding_mask must have shape \(2, 3\), got \(2, 2\)"),
        ({"position_ids": [0, 1, 2]}, r"position_ids must have shape \(2, 3\), got \(3,\)"),
        ({"position_ids": [[0, 1, 13]] * 2}, r"position_ids must lie in 0\.\.12, got 13"),
    ],
)
def test_refused_inputs(arguments: dict, message: str) -> None:
    config = CONFIGS["learned"]
    arguments = {"token_ids": [[1, 2, 3], [4, 5, 6]], **arguments}
    with pytest.raises(InputError, match=message):
        decoder_forward(config, random_weights(config), **arguments)


def test_refused_backward() -> None:
    weights = random_weights(BASE)
    trace = decoder_forward(BASE, weights, [[1, 2, 3]])
    with pytest.raises(InputError, match="needs grad_logits, or a forward pass with labels"):
        decoder_backward(BASE, weights, trace)
    with pytest.raises(InputError, match=r"grad_logits must have shape \(1, 3, 31\), got \(3, 31\)"):
        decoder_backward(BASE, weights, trace, grad_logits=np.zeros((3, 31)))


def test_refused_weights() -> None:
    def refused(message: str, **changes) -> None:
        weights = {**random_weights(BASE), **changes}
        weights = {name: weight for name, weight in weights.items() if weight is not None}
        with pytest.raises(WeightsError, match=message):
            decoder_forward(BASE, weights, [[1, 2, 3]])

    key = "blocks.1.attention.key.weight"
    refused(r"weights lack blocks\.1\.attention\.key\.weight, expected with shape \(24, 22\)", **{key: None})
    refused(r"key\.weight must have shape \(24, 22\), got \(22, 24\)", **{key: np.zeros((22, 24))})
    refused(r"key\.weight must be float64, got float32", **{key: np.zeros((24, 22), dtype=np.float32)})
    refused(r"weights hold head\.weight, which", **{"head.weight": np.zeros((31, 22))})


@every_config
def test_parameter_names(config: DecoderConfig) -> None:
    names = set(parameter_shapes(config))
    assert ("head.weight" in names) is not config.tie_embeddings
    assert ("position_embedding.weight" in names) is (config.position == "learned")
    assert ("blocks.1.feed_forward.gate.weight" in names) is (config.feed_forward == "gated")
    assert ("blocks.1.attention.value.bias" in names) is config.attention_bias
    assert ("blocks.1.attention.out.bias" in names) is config.attention_out_bias
    assert ("blocks.1.feed_forward.down.bias" in names) is config.feed_forward_bias
    assert ("blocks.1.attention_norm.bias" in names) is config.norm_bias
    assert ("final_norm.bias" in names) is config.norm_bias
