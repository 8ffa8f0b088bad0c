"""The whole decoder against the oracle: logits, loss, every gradient, for every pair of config values."""

import itertools

import numpy as np
import pytest
import torch

from model.covering import covering_sample, pairs
from model.random_decoder import BACKENDS, random_decoder
from proof_lm.config import DecoderConfig
from proof_lm.oracle import DecoderTrace, decoder_backward, decoder_forward
from sizes import BATCH, SMALL, TIME
from tolerances import decoder_chain, largest, rounding

VALUES = {
    "n_kv_heads": [6, 3, 1],
    "norm, norm_bias": [("layernorm", True), ("layernorm", False), ("rmsnorm", False)],
    "position, rope_layout": [
        ("rope", "interleaved"),
        ("rope", "half"),
        ("learned", "half"),
        ("none", "half"),
    ],
    "sliding_window": [None, 5],
    "feed_forward": ["mlp", "gated"],
    "activation": ["gelu", "gelu_tanh", "silu", "relu"],
    "attention_bias": [True, False],
    "attention_out_bias": [True, False],
    "feed_forward_bias": [True, False],
    "tie_embeddings": [True, False],
    "head_dim": [4, 6],
}
SAMPLE = covering_sample(VALUES)


def config_of(row: dict) -> DecoderConfig:
    """Fields that only make sense together are drawn together."""
    fields = {}
    for name, value in row.items():
        names = name.split(", ")
        fields |= dict(zip(names, value if len(names) > 1 else [value], strict=True))
    return SMALL.with_(**fields)


CONFIGS = [config_of(row) for row in SAMPLE]


class Inputs:
    """Row 0 is whole, row 1 padded on the left, row 2 on the right; labels that do not count are -100."""

    def __init__(self, config: DecoderConfig) -> None:
        rng = np.random.default_rng(1)
        self.token_ids = rng.integers(0, config.vocab_size, (BATCH, TIME))
        self.padding_mask = np.ones((BATCH, TIME), dtype=bool)
        self.padding_mask[1, :4], self.padding_mask[2, 9:] = False, False
        self.loss_mask = self.padding_mask & (rng.random((BATCH, TIME)) < 0.8)
        self.labels = np.where(self.loss_mask, rng.integers(0, config.vocab_size, (BATCH, TIME)), -100)

    def oracle(self, config: DecoderConfig, weights: dict[str, np.ndarray]) -> DecoderTrace:
        return decoder_forward(
            config, weights, self.token_ids, self.labels, self.loss_mask, padding_mask=self.padding_mask
        )


def test_the_sample_holds_every_pair_of_values() -> None:
    """Excludes a sampler that forgets a combination: the pairs are counted anew, two fields at a time."""
    met = set().union(*(pairs(row) for row in SAMPLE))
    for (a, of_a), (b, of_b) in itertools.combinations(VALUES.items(), 2):
        for value_a, value_b in itertools.product(of_a, of_b):
            assert (a, value_a, b, value_b) in met
    assert len(SAMPLE) < 30


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_logits_loss_and_every_gradient_are_the_oracles(config: DecoderConfig, backend: str) -> None:
    """Excludes a config value that is ignored, alone or beside another, on either attention path."""
    inputs = Inputs(config)
    model, weights = random_decoder(config, backend=backend)
    trace = inputs.oracle(config, weights)
    gradients = decoder_backward(config, weights, trace)
    gradients.pop("hidden")
    logits, loss = model(
        torch.from_numpy(inputs.token_ids),
        torch.from_numpy(inputs.labels),
        torch.from_numpy(inputs.loss_mask),
        padding_mask=torch.from_numpy(inputs.padding_mask),
    )
    loss.backward()

    real = inputs.padding_mask
    chain = decoder_chain(config, TIME)
    assert np.abs(logits.detach().numpy() - trace.logits)[real].max() <= rounding(
        chain, largest(trace.logits[real])
    )
    assert abs(loss.item() - trace.loss) <= rounding(chain, largest(trace.logits[real]))
    parameters = dict(model.named_parameters())
    assert set(parameters) == set(gradients)
    bound = rounding(chain, largest(trace.logits[real], *gradients.values()))
    for name, gradient in gradients.items():
        assert np.abs(parameters[name].grad.numpy() - gradient).max() <= bound, name


NEIGHBOURS = {
    "norm_eps": {"norm_eps": 2e-5},
    "norm": {"norm": "rmsnorm", "norm_bias": False},
    "rope_layout": {"rope_layout": "half"},
    "rope_theta": {"rope_theta": 9999.0},
    "position": {"position": "none"},
    "sliding_window": {"sliding_window": TIME - 1},
    "activation": {"activation": "gelu_tanh"},
}


@pytest.mark.parametrize("change", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_a_config_next_to_the_right_one_is_told_apart(change: dict) -> None:
    """The oracle of a config with one other value lies outside the bound, so ignoring the value would show."""
    config, inputs = SMALL.with_(norm_bias=False), Inputs(SMALL)
    _, weights = random_decoder(config)
    right = inputs.oracle(config, weights)
    wrong = inputs.oracle(config.with_(**change), weights)
    difference = np.abs(right.logits - wrong.logits)[inputs.padding_mask].max()
    assert difference > 1e4 * rounding(decoder_chain(config, TIME), largest(right.logits))


@pytest.mark.parametrize("config", [SMALL, SMALL.with_(position="learned")], ids=["rope", "learned"])
def test_positions_can_be_given(config: DecoderConfig) -> None:
    """Excludes position_ids that are accepted and not used, for one row of positions and for one a row."""
    model, weights = random_decoder(config)
    token_ids = Inputs(config).token_ids
    by_row = np.random.default_rng(2).integers(0, config.context_length, (BATCH, TIME))
    for position_ids in (by_row, by_row[0]):
        spread = np.broadcast_to(position_ids, (BATCH, TIME))
        expected = decoder_forward(config, weights, token_ids, position_ids=spread).logits
        logits, loss = model(torch.from_numpy(token_ids), position_ids=torch.from_numpy(position_ids))
        assert loss is None
        bound = rounding(decoder_chain(config, TIME), largest(expected))
        assert np.abs(logits.detach().numpy() - expected).max() <= bound
        default = decoder_forward(config, weights, token_ids).logits
        assert np.abs(expected - default).max() > 1e6 * bound


def test_hidden_states_and_logits_are_two_halves_of_the_forward() -> None:
    model, _ = random_decoder(SMALL)
    token_ids = torch.from_numpy(Inputs(SMALL).token_ids)
    with torch.no_grad():
        whole, _ = model(token_ids)
        assert torch.equal(model.logits(model.hidden_states(token_ids)), whole)
