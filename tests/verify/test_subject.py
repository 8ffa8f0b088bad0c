"""The subject is looked at, and left as it was."""

import copy
from collections.abc import Iterator

import pytest
import torch

from proof_lm.model import ProofLM
from proof_lm.verify import CONTRACTS, Contract, Measurement, ProofSubject, randomized, verify
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import SubjectError
from proof_lm.verify.verdict import EXACT
from sizes import SMALL


def test_verification_changes_nothing_of_the_model_it_is_given() -> None:
    model = randomized(SMALL.with_(dropout=0.2), 0).train()
    before = copy.deepcopy(model.state_dict())
    verify(ProofSubject("model", model))
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert model.attention_backend == "fused"


def test_an_edit_is_undone_to_the_bit_even_after_an_error() -> None:
    subject = ProofSubject("model", randomized(SMALL, 0))
    weight = subject.module.embedding.weight
    before = weight.detach().clone()

    def fail() -> None:
        with subject.edited(subject.embedding, 3, torch.nan):
            assert weight[3].isnan().all()
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        fail()
    assert torch.equal(weight, before)


def test_the_oracle_reads_the_subjects_own_memory() -> None:
    subject = ProofSubject("model", randomized(SMALL, 0))
    with subject.edited(subject.embedding, 0, 7.0):
        assert (subject.weights()["embedding.weight"][0] == 7.0).all()


def test_a_path_is_switched_for_the_call_only() -> None:
    subject = ProofSubject("model", ProofLM(SMALL))
    with subject.on("explicit") as module:
        assert module.attention_backend == "explicit"
    assert subject.module.attention_backend == "fused"


def test_edits_that_a_layer_lacks_are_skipped_and_others_last_one_call() -> None:
    subject = ProofSubject("model", randomized(SMALL.with_(attention_out_bias=False), 0))
    hidden = torch.randn(1, 4, SMALL.d_model, dtype=torch.float64)
    places = torch.arange(4)[None]
    name = "blocks.0.attention"
    sound = subject.run_layer(name, hidden, places, "explicit")
    silent = subject.run_layer(name, hidden, places, "explicit", {"out.weight": 0.0, "out.bias": 5.0})
    assert (silent == 0.0).all()
    assert torch.equal(subject.run_layer(name, hidden, places, "explicit"), sound)


@pytest.mark.parametrize(
    ("error", "verdict", "reason"),
    [
        (Inapplicable("too small"), "not applicable", "too small"),
        (MemoryError("1 TiB"), "inconclusive", "not enough memory: 1 TiB"),
        (KeyError("ours"), "inconclusive", "the check failed: KeyError: 'ours'"),
        (SubjectError("raised OSError: theirs"), "violated", "raised OSError: theirs"),
    ],
)
def test_only_the_subjects_own_errors_are_held_against_it(
    error: Exception, verdict: str, reason: str
) -> None:
    def check(subject: ProofSubject, probe: Probe) -> list[Measurement]:
        raise error

    contract = Contract("c", "s", frozenset(), check)
    (result,) = verify(ProofSubject("model", ProofLM(SMALL)), [contract]).results
    assert (result.verdict, result.reason) == (verdict, reason)


@pytest.mark.parametrize("error", [Inapplicable("too small"), MemoryError("1 TiB"), KeyError("ours")])
def test_a_violation_measured_before_the_check_broke_off_stands(error: Exception) -> None:
    def check(subject: ProofSubject, probe: Probe) -> Iterator[Measurement]:
        yield Measurement("explicit", "a leak", 1.0, EXACT)
        raise error

    contract = Contract("c", "s", frozenset(), check)
    (result,) = verify(ProofSubject("model", ProofLM(SMALL)), [contract], level="quick").results
    assert result.verdict == "violated"
    assert [m.measured for m in result.measurements] == [1.0]


def test_a_model_that_cannot_load_its_own_state_is_in_violation() -> None:
    class Refuses(ProofLM):
        def load_state_dict(self, *args: object, **kwargs: object) -> None:
            raise RuntimeError("not mine")

    model = randomized(SMALL, 0)
    model.__class__ = Refuses
    saved = [contract for contract in CONTRACTS if contract.name == "save-load"]
    (result,) = verify(ProofSubject("model", model), saved).results
    assert (result.verdict, result.reason) == ("violated", "raised RuntimeError: not mine")


def test_an_error_of_the_subject_is_a_violation_that_says_what_was_raised() -> None:
    class Breaks(ProofLM):
        def logits(self, hidden: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no head today")

    model = randomized(SMALL, 0)
    model.__class__ = Breaks
    result = verify(ProofSubject("broken", model)).results[0]
    assert result.verdict == "violated"
    assert result.reason == "raised RuntimeError: no head today"
