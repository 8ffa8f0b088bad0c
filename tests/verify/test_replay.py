"""A violation becomes a file, and the file shows it again; on a sound decoder it is gone."""

import hashlib
import json
import math
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from proof_lm.model import ProofLM
from proof_lm.verify import CONTRACTS, MUTANTS, ProofSubject, Subject, Verdict, probe, randomized, verify
from proof_lm.verify.fingerprint import fingerprint
from proof_lm.verify.mutants import BASE
from proof_lm.verify.replay import Replay, replay, violation_files
from proof_lm.verify.verdict import EXACT, Bound, ContractResult, Measurement, Verification
from proof_lm.verify.violation import Origin, Violation, ViolationError, read_violation
from sizes import SMALL

SEED = 2
PLANTED = {
    "oracle-logits": "sees-only-the-past",
    "oracle-gradients": "skips-detached",
    "causality": "no-causal-mask",
    "sharp-attention": "mask-off-by-one",
    "input-gradients": "no-causal-mask-in-training",
    "prefix": "rope-by-head",
    "window": "window-one-less",
    "batch-independence": "batch-mixing",
    "rope": "rope-reversed",
    "position-shift": "rope-on-values",
    "narrow-dtypes": "rope-angles-in-model-dtype",
    "grouped-heads": "kv-heads-tiled",
    "norm-formula": "eps-outside-root",
    "residual-path": "post-norm",
    "skip-path": "no-first-skip",
    "final-norm": "no-final-norm",
    "cache": "nan-on-prefill",
    "cache-state": "cache-not-reordered",
    "tying": "tied-by-copy",
    "save-load": "gain-reset-after-loading",
    "parameter-count": "unused-parameter",
    "masked-loss": "labels-shifted",
    "padding": "padding-ignored",
    "determinism": "dropout-in-eval",
    "no-side-effects": "gain-drifts",
    "config-fields": "eps-fixed",
    "initialization": "init-uniform",
    "materialization": "table-lost-on-meta",
    "upstream-gradients": "rms-detached",
    "loss-gradients": "first-upstream-for-all",
    "recomputation": "recomputation-differs",
    "half-precision": "variance-in-half",
    "optimizer-groups": "gains-decay",
}


def document_of(subject: Subject, contract: str, level: str = "quick") -> dict[str, Any]:
    """What is written where a verification has found that contract violated."""
    result = ContractResult(contract, "As it is stated.", Verdict.VIOLATED)
    run = Verification(subject.name, SEED, (contract,), [result], level)
    (file,) = violation_files(run, subject, target="file.py:build", arguments=["width=24"]).items()
    assert file[0] == f"{contract}.json"
    return file[1]


@cache
def leak() -> dict[str, Any]:
    """What is written of a decoder without a causal mask."""
    return document_of(_mutant("no-causal-mask"), "prefix")


def through_a_file(document: dict[str, Any], folder: Path) -> Violation:
    text = json.dumps(document, allow_nan=False)
    assert len(text) < 8_000
    assert str(Path.cwd()) not in text
    (folder / "violation.json").write_text(text)
    return read_violation(folder / "violation.json")


@pytest.mark.parametrize(("contract", "mutant"), PLANTED.items())
def test_a_violation_is_shown_again_by_its_file_and_gone_on_a_sound_decoder(
    contract: str, mutant: str, tmp_path: Path
) -> None:
    (planted,) = [m for m in MUTANTS if m.name == mutant]
    document = document_of(ProofSubject(mutant, planted.build(1)), contract)
    violation = through_a_file(document, tmp_path)

    again = replay(violation, ProofSubject("the same", planted.build(1)))
    assert (again.outcome, again.exit_status, again.is_same, again.reason) == ("shown again", 1, True, "")
    assert again.now is not None
    assert again.now.verdict is Verdict.VIOLATED
    assert repr(again.now) == repr(
        violation.measurement
    )  # the same number to the bit; NaN is no equal of NaN
    assert again.last_call == violation.last_call
    assert again.fingerprint == violation.fingerprint

    sound = randomized(BASE.with_(**planted.changes), 1)
    gone = replay(violation, ProofSubject("sound", sound))
    assert (gone.outcome, gone.exit_status, gone.reason) == ("gone", 0, "")


def test_the_case_is_the_smallest_where_there_is_one_and_the_result_says_the_same(tmp_path: Path) -> None:
    subject = _mutant("no-causal-mask")
    (contract,) = [c for c in CONTRACTS if c.name == "causality"]
    verification = verify(subject, [contract], seed=SEED)
    smallest = verification.results[0].smallest
    assert smallest is not None
    document = violation_files(verification, subject, target=None)["causality.json"]
    assert (document["n_rows"], document["n_tokens"], document["probe_seed"]) == (1, 2, SEED)
    assert document["measured"] == smallest.measurement.measured
    assert document["where"] == smallest.measurement.where
    assert document["exhaustive"] is False
    assert (document["level"], document["seed"], document["target"]) == ("standard", SEED, None)
    again = replay(through_a_file(document, tmp_path), subject)
    assert repr(again.now) == repr(smallest.measurement)
    assert again.last_call is not None
    assert again.last_call["shape"] == [1, 2]


def test_without_a_smallest_case_it_is_the_probe_that_finds_it(tmp_path: Path) -> None:
    subject = _mutant("stops-down-the-batch")
    document = document_of(subject, "greedy", "standard")
    assert (document["n_rows"], document["n_tokens"], document["exhaustive"]) == (3, 19, True)
    assert replay(through_a_file(document, tmp_path), subject).exit_status == 1


class FailsInFourAfterOne(ProofLM):
    def forward(self, token_ids: torch.Tensor, *args: Any, cache: Any = None, **kwargs: Any) -> Any:
        fails = cache is not None and (cache.length, token_ids.shape[1]) == (1, 4)
        logits, loss = super().forward(token_ids, *args, cache=cache, **kwargs)
        return logits + fails, loss


def test_a_way_that_only_an_exhaustive_probe_takes_is_taken_again(tmp_path: Path) -> None:
    subject = ProofSubject("fails", _become(FailsInFourAfterOne))
    document = document_of(subject, "cache", "standard")
    assert (document["n_rows"], document["n_tokens"], document["exhaustive"]) == (3, 19, True)
    assert replay(through_a_file(document, tmp_path), subject).outcome == "shown again"


class MixesSquares(ProofLM):
    def forward(self, token_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        logits, loss = super().forward(token_ids, *args, **kwargs)
        is_square = token_ids.shape == (BASE.n_heads, BASE.n_heads)
        return logits + token_ids.sum() if is_square else logits, loss


def test_a_fault_that_the_second_probe_finds_is_replayed_with_that_one(tmp_path: Path) -> None:
    subject = ProofSubject("mixes", _become(MixesSquares))
    document = document_of(subject, "batch-independence", "standard")
    assert (document["n_rows"], document["n_tokens"]) == (BASE.n_heads, BASE.n_heads)
    assert replay(through_a_file(document, tmp_path), subject).outcome == "shown again"


def test_the_last_call_is_the_one_that_the_model_saw() -> None:
    subject = _mutant("no-causal-mask")
    seen: list[torch.Tensor] = []
    subject.module.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].clone()))
    call = document_of(subject, "prefix")["last_call"]
    assert call == {"shape": list(seen[-1].shape), "token_ids": seen[-1].tolist(), "given": {}}


def test_of_a_large_model_the_case_is_the_probe_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "LARGE", 1)
    subject = _mutant("no-causal-mask")
    (contract,) = [c for c in CONTRACTS if c.name == "prefix"]
    verification = verify(subject, [contract], seed=SEED)
    document = violation_files(verification, subject, target="smollm2")["prefix.json"]
    assert (document["n_rows"], document["n_tokens"], document["exhaustive"]) == (2, 19, False)
    assert replay(through_a_file(document, tmp_path), subject).exit_status == 1
    assert replay(through_a_file(document, tmp_path), _sound()).exit_status == 0


def test_masks_positions_and_labels_are_written_in_words() -> None:
    leaks = _mutant("no-causal-mask-with-padding-mask")
    call = document_of(leaks, "causality")["last_call"]
    rows, tokens = call["shape"]
    mask = call["given"]["padding_mask"].split(" / ")
    assert [len(row) for row in mask] == [tokens] * rows
    assert set("".join(mask)) <= {"0", "1"}
    call = document_of(_mutant("labels-shifted"), "masked-loss")["last_call"]
    labels = [[int(entry) for entry in row.split()] for row in call["given"]["labels"].split(" / ")]
    assert [len(row) for row in labels] == [call["shape"][1]] * call["shape"][0]


class Raises(ProofLM):
    def forward(self, token_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if token_ids.shape[1] > 1:
            raise RuntimeError("no room in /home/somebody/model/cache.py [see https://example.org/a/b]")
        return super().forward(token_ids, *args, **kwargs)


def test_what_raised_raises_again_or_is_gone_and_says_nothing_of_the_machine(tmp_path: Path) -> None:
    subject = ProofSubject("raises", _become(Raises))
    document = document_of(subject, "prefix")
    assert document["measured"] is document["path"] is None
    assert document["raised"] == "raised RuntimeError: no room in cache.py [see https://example.org/a/b]"
    violation = through_a_file(document, tmp_path)
    again = replay(violation, subject)
    assert (again.outcome, again.is_same, again.reason) == ("shown again", True, document["raised"])
    assert again.now is None
    assert replay(violation, _sound()).outcome == "gone"


def test_a_measured_violation_in_whose_place_the_subject_raises_is_not_gone(tmp_path: Path) -> None:
    violation = through_a_file(leak(), tmp_path)
    now = replay(violation, ProofSubject("raises", _become(Raises)))
    assert (now.outcome, now.is_same) == ("shown again", False)
    assert now.reason.startswith("raised RuntimeError")


def test_another_violation_of_the_contract_in_that_case_is_not_gone(tmp_path: Path) -> None:
    violation = through_a_file(leak() | {"quantity": "what was named otherwise"}, tmp_path)
    now = replay(violation, _mutant("no-causal-mask"))
    assert (now.outcome, now.is_same, now.exit_status) == ("shown again", False, 1)


def test_what_is_not_found_again_is_written_as_it_was(tmp_path: Path) -> None:
    found = Measurement("explicit", "max |change|", 0.25, EXACT, "row 0")
    result = ContractResult("prefix", "No leak.", Verdict.VIOLATED, (found,))
    verification = Verification("t", SEED, ("prefix",), [result], level="quick")
    document = violation_files(verification, _sound(), target=None)["prefix.json"]
    assert (document["measured"], document["quantity"], document["last_call"]) == (0.25, "max |change|", None)
    now = replay(through_a_file(document, tmp_path), _sound())
    assert (now.outcome, now.exit_status) == ("undecided", 3)
    assert now.reason == "what was measured then, max |change| on path explicit, is not measured now"


def test_a_contract_of_another_list_cannot_be_named_and_is_left_out() -> None:
    result = ContractResult("my-own", "Mine.", Verdict.VIOLATED, (Measurement("-", "q", 1.0, EXACT),))
    assert violation_files(Verification("t", 0, ("my-own",), [result]), _sound(), target=None) == {}


def _without_loss(subject: Subject) -> None:
    subject.absent["loss"] = "it has no loss"


def _short(subject: Subject) -> None:
    subject.context_length = 1


def _on_one_path(subject: Subject) -> None:
    subject.paths = subject.paths[1:]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_without_loss, "it has no loss"),
        (_short, "the case has rows of {n} tokens, and its context is 1"),
        (_on_one_path, "what was measured then, {quantity} on path explicit, is not measured now"),
    ],
)
def test_what_cannot_be_asked_any_more_is_undecided(
    change: Callable[[Subject], None], reason: str, tmp_path: Path
) -> None:
    document = document_of(_mutant("labels-shifted"), "masked-loss")
    subject = _sound()
    change(subject)
    now = replay(through_a_file(document | {"n_tokens": max(2, document["n_tokens"])}, tmp_path), subject)
    assert (now.outcome, now.exit_status) == ("undecided", 3)
    assert now.reason == reason.format(n=max(2, document["n_tokens"]), quantity=document["quantity"])


def test_a_residual_between_the_bounds_is_undecided() -> None:
    violation = _violation()
    sound = Measurement("explicit", "max |change|", 0.0, EXACT)
    between = Measurement("explicit", "another", 0.5, Bound(0.1, 1.0, "stated"))
    result = ContractResult("causality", "No leak.", Verdict.INCONCLUSIVE, (sound, between))
    found = Replay(violation, result, None, "")
    assert (found.outcome, found.now) == ("undecided", between)
    assert "between what rounding explains and what only a fault does" in found.reason


def test_numbers_that_are_not_finite_come_back(tmp_path: Path) -> None:
    for written, read in (("nan", "nan"), ("inf", "inf"), (7, "7.0")):
        violation = through_a_file(leak() | {"measured": written}, tmp_path)
        assert violation.measurement is not None
        assert repr(violation.measurement.measured) == read


CALL = {"shape": [1, 2], "token_ids": [[0, 8]], "given": {}}
DAMAGES: list[tuple[dict[str, Any], str]] = [
    (
        {"format": "proof-lm/verification"},
        "is no violation file: it does not say format 'proof-lm/violation'",
    ),
    ({"version": 2}, "has version 2, and this proof-lm reads version 1: a newer proof-lm reads it"),
    ({"version": None}, "has version None, and this proof-lm reads version 1"),
    ({"contract": "kindness"}, "no contract named 'kindness'; there are oracle-logits, "),
    ({"contract": 3}, "is damaged: contract must be a string"),
    ({"n_rows": 0}, "is damaged: n_rows must be a whole number from 1 to 4096"),
    ({"n_tokens": 10**9}, "is damaged: n_tokens must be a whole number from 1 to 4096"),
    ({"probe_seed": True}, "is damaged: probe_seed must be a whole number"),
    ({"exhaustive": 1}, "is damaged: exhaustive must be true or false"),
    ({"measured": "much"}, 'is damaged: measured must be a number, "nan", "inf" or "-inf"'),
    ({"measured": [1]}, "is damaged: measured must be a number"),
    ({"measured": 0}, "is damaged: what was measured is no violation"),
    ({"measured": None}, "is damaged: what was measured is no violation"),
    ({"bound": {"rounding": 0, "fault": 0}}, "is damaged: derivation must be a string"),
    ({"bound": 3}, "is damaged: bound must be an object or null"),
    ({"target": 3}, "is damaged: target must be a string or null"),
    ({"arguments": None}, "is damaged: arguments must be a list"),
    ({"map": {"file": "map.json"}}, "is damaged: sha256 must be a string"),
    ({"last_call": []}, "is damaged: last_call must be an object or null"),
    ({"last_call": {"shape": [1, 2], "token_ids": 3}}, "is damaged: token_ids must be a list"),
    ({"last_call": CALL | {"token_ids": [3]}}, "is damaged: token_ids must be a list of rows"),
    ({"last_call": CALL | {"shape": [math.inf]}}, "is damaged: shape and token_ids must be whole numbers"),
    ({"last_call": CALL | {"token_ids": [[[]]]}}, "is damaged: shape and token_ids must be whole numbers"),
    ({"last_call": CALL | {"given": {"mask": 3}}}, "is damaged: mask must be a string"),
    ({"measured": 10**400}, "is damaged: measured is too large a number"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_file_that_is_damaged_or_unknown_is_refused(
    damage: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "violation.json"
    file.write_text(json.dumps(_violation().to_dict() | damage))
    with pytest.raises(ViolationError) as refused:
        read_violation(file)
    assert message in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_any_entry_that_is_missing_makes_a_file_damaged(tmp_path: Path) -> None:
    file = tmp_path / "violation.json"
    whole = _violation().to_dict()
    file.write_text(json.dumps(whole))
    assert read_violation(file) == _violation()
    for key in whole.keys() - {"format", "version"}:
        file.write_text(json.dumps({name: value for name, value in whole.items() if name != key}))
        with pytest.raises(ViolationError, match="is damaged"):
            read_violation(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is not JSON"),
        (b'{"format": ', "it is not JSON"),
        (b"\x80\x02.", "it is not JSON"),
        (b"[" * 200_000, "it is not JSON"),
        (b"1" * 5_000, "it is not JSON"),
        (b"[]", "it does not say format"),
        (b" " * 1_000_001, "it is larger than 1,000,000 bytes"),
    ],
)
def test_what_is_no_violation_at_all_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ViolationError, match=message):
        read_violation(tmp_path / "x.json")
    with pytest.raises(ViolationError, match=r"cannot read .*: No such file"):
        read_violation(tmp_path / "y.json")
    with pytest.raises(ViolationError, match=r"cannot read .*: Is a directory"):
        read_violation(tmp_path)


def test_the_fingerprint_is_of_names_dtypes_shapes_and_bytes() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.tensor([[1.5, -2.0]]))
            self.register_buffer("b", torch.tensor(True))

    expected = hashlib.sha256(
        b"parameter a\ntorch.float32 (1, 2)\n"
        + struct.pack("<2f", 1.5, -2.0)
        + b"buffer b\ntorch.bool ()\n\x01"
    )
    assert fingerprint(Two()) == expected.hexdigest()


def test_the_fingerprint_changes_with_a_single_bit_and_with_nothing_else() -> None:
    model = randomized(SMALL, 0)
    before = fingerprint(model)
    assert fingerprint(randomized(SMALL, 0).train()) == before
    with torch.no_grad():
        model.blocks[1].attention_norm.bias[3] *= 1 + 2**-23
    assert fingerprint(model) != before
    assert fingerprint(randomized(SMALL, 0).double()) != before


def test_tensors_without_values_count_by_name() -> None:
    with torch.device("meta"):
        here, there = nn.Linear(2, 3), nn.Linear(3, 5)
    assert fingerprint(here) == fingerprint(there) != fingerprint(nn.Linear(2, 3))
    assert fingerprint(nn.Sequential(nn.LazyLinear(3))) != fingerprint(here)


def test_a_sparse_buffer_has_a_fingerprint() -> None:
    module = nn.Linear(2, 3)
    module.register_buffer("mask", torch.eye(3).to_sparse())
    assert fingerprint(module) != fingerprint(nn.Linear(2, 3))


def _mutant(name: str) -> ProofSubject:
    (mutant,) = [m for m in MUTANTS if m.name == name]
    return ProofSubject(name, mutant.build(1))


def _sound() -> ProofSubject:
    return ProofSubject("sound", randomized(BASE, 1))


def _become(kind: type[ProofLM]) -> ProofLM:
    model = randomized(BASE, 1)
    model.__class__ = kind
    return model


def _violation() -> Violation:
    return Violation(
        contract="causality",
        statement="No leak.",
        measurement=Measurement("explicit", "max |change|", 0.25, EXACT, "row 0"),
        raised="",
        seed=SEED,
        level="quick",
        probe_seed=SEED,
        n_rows=1,
        n_tokens=2,
        exhaustive=False,
        last_call=None,
        origin=Origin("file.py:build", ("width=24",), "map.json", "0" * 64),
        fingerprint="1" * 64,
        versions={"proof_lm": "0.1.0", "torch": "2.13.0"},
    )
