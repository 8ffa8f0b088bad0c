"""The oracle on packed rows: each document as if it were alone, and the gradient against differences."""

import numpy as np
import pytest

from oracle.cases import CONFIGS, random_inputs, random_weights
from oracle.test_decoder import DIFFERENCE, PEER
from proof_lm.config import DecoderConfig
from proof_lm.errors import InputError
from proof_lm.oracle import central_difference, decoder_backward, decoder_forward

# Row 0: three documents; row 1: padded left, two documents; row 2: padded right, the second all padding.
DOCUMENTS = np.array([[4, 4, 4, 9, 2, 2, 2], [0, 0, 0, 0, 1, 1, 1], [5, 5, 5, 5, 6, 6, 6]])
PIECES = [
    (0, 0, 3),
    (0, 3, 4),
    (0, 4, 7),
    (1, 2, 4),
    (1, 4, 7),
    (2, 0, 4),
]  # row, start, end of the real tokens
some_configs = pytest.mark.parametrize(
    "config", [CONFIGS[name] for name in ("defaults", "llama", "learned", "nope", "window")]
)


def forward(config: DecoderConfig, weights: dict[str, np.ndarray]):
    inputs = random_inputs(config)
    return decoder_forward(
        config,
        weights,
        inputs.token_ids,
        inputs.labels,
        inputs.loss_mask,
        padding_mask=inputs.padding_mask,
        document_ids=DOCUMENTS,
    )


@some_configs
def test_each_document_has_the_logits_and_the_gradients_of_its_tokens_alone(config: DecoderConfig) -> None:
    """The gradients of a sum over documents are the sum of their gradients."""
    weights, inputs = random_weights(config), random_inputs(config)
    upstream = np.random.default_rng(3).standard_normal((3, 7, 31)) * inputs.padding_mask[..., None]
    packed = forward(config, weights)
    gradients = decoder_backward(config, weights, packed, grad_logits=upstream)
    totals = {name: np.zeros_like(array) for name, array in weights.items()}
    for row, start, end in PIECES:
        alone = decoder_forward(config, weights, inputs.token_ids[row : row + 1, start:end])
        np.testing.assert_allclose(packed.logits[row, start:end], alone.logits[0], **PEER)
        of_alone = decoder_backward(config, weights, alone, grad_logits=upstream[row : row + 1, start:end])
        np.testing.assert_allclose(
            gradients["hidden"][row, start:end], of_alone["hidden"][0], rtol=1e-10, atol=1e-11
        )
        for name, total in totals.items():
            total += of_alone[name]
    for name, total in totals.items():
        np.testing.assert_allclose(gradients[name], total, rtol=1e-10, atol=1e-11, err_msg=name)
    # Reach: without the ids the second document of a row comes out otherwise.
    whole = decoder_forward(config, weights, inputs.token_ids, padding_mask=inputs.padding_mask)
    assert np.abs(whole.logits[0, 3] - packed.logits[0, 3]).max() > 1e-3


@some_configs
def test_gradient_is_the_central_difference(config: DecoderConfig) -> None:
    weights = random_weights(config)
    gradients = decoder_backward(config, weights, forward(config, weights))
    for name in ("embedding.weight", "blocks.0.attention.query.weight", "blocks.1.attention.value.weight"):
        steepest = np.unravel_index(np.argmax(np.abs(gradients[name])), gradients[name].shape)
        measured = central_difference(lambda _: forward(config, weights).loss, weights[name], [steepest])
        np.testing.assert_allclose(measured, [gradients[name][steepest]], rtol=1e-7, atol=DIFFERENCE)
        assert np.abs(gradients[name]).max() > 1e4 * DIFFERENCE, f"{name}: too flat to tell"


def test_visibility_and_positions_written_out() -> None:
    """Every pair, from the statement; excludes a window counted in positions, and a border off by one."""
    config = CONFIGS["window"]  # of 3 tokens
    inputs = random_inputs(config)
    trace = forward(config, random_weights(config))
    for row in range(3):
        for t in range(7):
            for s in range(7):
                sees = (
                    t - 3 < s <= t and DOCUMENTS[row, s] == DOCUMENTS[row, t] and inputs.padding_mask[row, s]
                )
                assert trace.visible[row, t, s] == sees
    assert trace.position_ids.tolist() == [
        [0, 1, 2, 0, 0, 1, 2],
        [0, 0, 0, 1, 0, 1, 2],
        [0, 1, 2, 3, 0, 0, 0],
    ]


def test_given_positions_win() -> None:
    config = CONFIGS["learned"]
    positions = np.tile(np.arange(7), (3, 1))
    trace = decoder_forward(
        config, random_weights(config), positions, position_ids=positions, document_ids=DOCUMENTS
    )
    assert np.array_equal(trace.position_ids, positions)


@pytest.mark.parametrize(
    ("document_ids", "message"),
    [
        (
            [[1, 1, 2], [3, 4, 3]],
            "one run of equal ids a document, but row 1 returns to document 3 at token 2",
        ),
        ([[1, 1, 2]], r"document_ids must have shape \(2, 3\), got \(1, 3\)"),
        ([[0.5, 1, 2]] * 2, "document_ids must hold integers, got dtype float64"),
    ],
)
def test_refused_documents(document_ids: list, message: str) -> None:
    config = CONFIGS["defaults"]
    with pytest.raises(InputError, match=message):
        decoder_forward(config, random_weights(config), [[1, 2, 3], [4, 5, 6]], document_ids=document_ids)


def test_a_return_is_found_across_padding_and_not_in_it() -> None:
    config = CONFIGS["defaults"]
    weights, document_ids = random_weights(config), [[4, 2, 4, 9, 9, 4]]

    def run(*real: int) -> None:
        mask = np.array([real], dtype=bool)
        decoder_forward(config, weights, [[1] * 6], padding_mask=mask, document_ids=document_ids)

    run(1, 0, 1, 1, 1, 0)
    with pytest.raises(InputError, match="returns to document 4 at token 5"):
        run(1, 0, 1, 1, 1, 1)
    with pytest.raises(InputError, match="returns to document 4 at token 2"):
        run(1, 1, 1, 1, 1, 0)
