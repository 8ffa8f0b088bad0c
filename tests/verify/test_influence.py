"""Which token moves which position, and what heads attend to, beside the oracle."""

import numpy as np
import pytest
import torch
from torch import nn

from proof_lm import oracle
from proof_lm.verify import MUTANTS, ForeignSubject, ProofSubject, Subject, randomized
from proof_lm.verify.contracts.input_gradients import distinct_tokens
from proof_lm.verify.influence import measure_influence, measure_influences
from proof_lm.verify.probe import Probe
from proof_lm.verify.report import influence_from_dict, influence_to_dict
from sizes import MODERN, SMALL
from verify.foreign import torch_nn_decoder

PATHS = ["explicit", "fused"]


def mutant(name: str) -> ProofSubject:
    return ProofSubject(name, next(m for m in MUTANTS if m.name == name).build())


def future(matrix: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """What tokens do to earlier positions."""
    values = np.array(matrix)
    return values[np.tril_indices(len(values), -1)]


def past(matrix: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """What tokens do to their own and later positions."""
    values = np.array(matrix)
    return values[np.triu_indices(len(values))]


@pytest.mark.parametrize("path", PATHS)
def test_a_sound_decoder_shows_an_empty_future_and_a_full_past(path: str) -> None:
    found = measure_influence(ProofSubject("sound", randomized(SMALL, 0)), 0, path)
    assert len(set(found.tokens)) == 12
    for matrix in (found.by_intervention, found.by_gradient):
        assert np.array(matrix).shape == (12, 12)
        assert not future(matrix).any()
        assert past(matrix).all()
    assert not found.absent


@pytest.mark.parametrize("path", PATHS)
def test_every_number_is_the_oracles(path: str) -> None:
    subject = ProofSubject("sound", randomized(MODERN, 0))
    found = measure_influence(subject, 0, path)
    row, spare = distinct_tokens(subject, Probe(subject, 0), 12)
    assert found.tokens == tuple(row.tolist())
    weights, ids = subject.weights(), row.numpy()[None]
    trace = oracle.decoder_forward(MODERN, weights, ids)
    for k in range(12):
        changed = ids.copy()
        changed[0, k] = spare
        moved = abs(oracle.decoder_forward(MODERN, weights, changed).logits - trace.logits)[0].max(-1)
        np.testing.assert_allclose(found.by_intervention[k], moved, rtol=0, atol=1e-12)
    for t in (0, 5, 11):
        upstream = np.zeros_like(trace.logits)
        upstream[0, t, spare] = 1.0
        gradients = oracle.decoder_backward(MODERN, weights, trace, grad_logits=upstream)
        sizes = abs(gradients["embedding.weight"][ids[0]]).max(-1)
        np.testing.assert_allclose([row[t] for row in found.by_gradient], sizes, rtol=0, atol=1e-12)
    assert [each.layer for each in found.attention] == [0, 1]
    for each, block in zip(found.attention, trace.blocks, strict=True):
        np.testing.assert_allclose(each.heads, block.attention_trace.weights[0], rtol=0, atol=1e-14)


def test_a_leak_is_seen_on_the_path_that_leaks() -> None:
    explicit, fused = measure_influences(mutant("no-causal-mask-when-fused"), 0)
    assert (explicit.path, fused.path) == ("explicit", "fused")
    assert not future(explicit.by_intervention).any()
    assert not future(explicit.by_gradient).any()
    assert future(fused.by_intervention).all()
    assert future(fused.by_gradient).all()
    heads = (
        np.array([each.heads for each in explicit.attention]),
        np.array([e.heads for e in fused.attention]),
    )
    assert not np.triu(heads[0], 1).any()
    assert np.triu(heads[1], 1)[..., 0, 1:].all()
    np.testing.assert_allclose(heads[1].sum(-1), 1.0, rtol=0, atol=1e-14)


def test_a_leak_in_the_first_row_alone_is_seen() -> None:
    assert future(measure_influence(mutant("leak-in-first-row"), 0, "explicit").by_intervention).any()


def test_watching_leaves_no_trace() -> None:
    subject = ProofSubject("sound", randomized(SMALL, 0))
    ids = torch.arange(7)[None]
    before = subject.logits(ids, "fused")
    measure_influence(subject, 0, "fused")
    assert torch.equal(subject.logits(ids, "fused"), before)
    assert "attend" not in vars(subject.module.get_submodule("blocks.0.attention"))


def test_of_a_foreign_decoder_the_maps_are_absent_and_the_rest_is_there() -> None:
    (found,) = measure_influences(ForeignSubject("foreign", torch_nn_decoder.correct()), 0)
    assert not future(found.by_intervention).any()
    assert past(found.by_gradient).all()
    assert found.attention == ()
    assert found.absent == {"attention": "its attention layers cannot be watched from outside"}


def test_what_cannot_be_measured_is_absent_with_the_reason() -> None:
    subject = ProofSubject("two tokens", randomized(SMALL.with_(vocab_size=2), 0))
    found = measure_influence(subject, 0, "explicit")
    assert found.tokens == ()
    assert found.absent["interventions"] == "there are no two tokens beside a third"

    subject = ProofSubject("frozen", randomized(SMALL, 0))
    subject.embedding.requires_grad_(False)
    assert measure_influence(subject, 0, "explicit").absent == {
        "gradients": "its embedding takes no gradient"
    }


def test_a_subject_that_raises_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    subject: Subject = ProofSubject("raises", randomized(SMALL, 0))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no\nforward today")

    monkeypatch.setattr(nn.Linear, "forward", fail)
    monkeypatch.setattr(type(subject.module), "hidden_states", fail)
    found = measure_influence(subject, 0, "explicit")
    assert found.by_intervention == found.by_gradient == found.attention == ()
    assert set(found.absent) == {"interventions", "gradients", "attention"}
    assert found.absent["interventions"] == "raised RuntimeError: no\nforward today"


def test_it_is_written_and_read_back() -> None:
    found = measure_influence(ProofSubject("sound", randomized(SMALL, 0)), 0, "explicit")
    assert influence_from_dict(influence_to_dict(found)) == found
