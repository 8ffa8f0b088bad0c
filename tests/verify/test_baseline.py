"""A verification held against an earlier one."""

import json
from pathlib import Path
from typing import Any

import pytest

from proof_lm.verify.baseline import BaselineError, compare, load, save, summary
from proof_lm.verify.verdict import EXACT, ContractResult, Measurement, Verdict, Verification

LEAK = Measurement("explicit", "max |change|", 0.5, EXACT, "row 1: token 3")
HOLDS, VIOLATED, INCONCLUSIVE, INAPPLICABLE = Verdict
STATES = {"holds": HOLDS, "violated": VIOLATED, "inconclusive": INCONCLUSIVE, "not applicable": INAPPLICABLE}
ALL = [*STATES, "undecided", "not judged"]


def verification(**verdicts: str) -> Verification:
    """Contracts with these verdicts; undecided ones last."""
    results = [
        ContractResult(
            name,
            "It does.",
            STATES[verdict],
            (LEAK,) if verdict == "violated" else (),
            "too little\nmemory" if verdict == "inconclusive" else "",
        )
        for name, verdict in verdicts.items()
        if verdict in STATES
    ]
    undecided = [name for name, verdict in verdicts.items() if verdict == "undecided"]
    planned = (*(result.name for result in results), *undecided)
    return Verification("model:build", 3, planned, results, "quick")


WEAKER = {
    ("holds", after) for after in ALL if after != "holds"
} | {(before, "violated") for before in ("inconclusive", "not applicable", "undecided")}  # fmt: skip


@pytest.mark.parametrize("after", ALL)
@pytest.mark.parametrize("before", ALL[:-1])
def test_a_contract_is_weaker_if_less_can_be_said_of_it(before: str, after: str) -> None:
    changes = compare(save(verification(prefix=before)), verification(prefix=after))
    assert [(change.name, change.before, change.after) for change in changes] == (
        [("prefix", before, after)] if (before, after) in WEAKER else []
    )


def test_contracts_that_the_baseline_does_not_know_are_no_concern_of_it() -> None:
    assert compare(save(verification(a="holds")), verification(new="violated", a="holds")) == []


def test_the_document_is_json_and_says_of_what_it_is_a_baseline() -> None:
    document = save(verification(a="holds", b="violated", c="undecided"))
    assert json.loads(json.dumps(document)) == {
        "format": "proof-lm/baseline",
        "version": 1,
        "target": "model:build",
        "level": "quick",
        "seed": 3,
        "contracts": {"a": "holds", "b": "violated", "c": "undecided"},
    }


def test_the_summary_says_what_got_weaker_and_why_and_what_is_better() -> None:
    before = save(verification(a="holds", b="holds", c="violated", d="holds", e="holds", f="violated"))
    now = verification(a="violated", b="inconclusive", c="holds", d="holds", f="violated", new="holds")
    assert summary(before, now).splitlines() == [
        "3 contracts are weaker than in the baseline (model:build, quick, seed 3)",
        "  a: was 'holds', is 'violated': explicit: max |change| = 0.5, must be 0 exactly, at row 1: token 3",
        "  b: was 'holds', is 'inconclusive': too little memory",
        "  e: was 'holds', is 'not judged'",
        "  judge by all contracts that it has: --level quick, and no --only",
        "better than in it: c; --save-baseline FILE keeps that",
    ]
    assert summary(before, verification(**before["contracts"])) == (
        "no contract is weaker than in the baseline (model:build, quick, seed 3)"
    )


def test_a_baseline_comes_back_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps(save(verification(a="holds"))))
    assert [change.after for change in compare(load(file), verification(a="violated"))] == ["violated"]


GOOD = save(verification(a="holds"))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "it is not JSON; write one with --save-baseline"),
        ("\xff", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ([], "no baseline: it has no format 'proof-lm/baseline'"),
        ({}, "no baseline: it has no format 'proof-lm/baseline'"),
        ({"format": "proof-lm/verification"}, "no baseline: it is a 'proof-lm/verification'; write one with"),
        (GOOD | {"version": 2}, "a baseline of version 2, and this ProofLM reads 1"),
        (GOOD | {"contracts": ["a"]}, "a damaged baseline: it needs target, level, seed and contracts"),
        ({k: v for k, v in GOOD.items() if k != "seed"}, "a damaged baseline: it needs target"),
        (GOOD | {"contracts": {"a": "fine"}}, "a damaged baseline: 'a' is 'fine', which is none of holds"),
        (GOOD | {"contracts": {"a": ["holds"]}}, "a damaged baseline: 'a' is ['holds']"),
    ],
)
def test_what_is_no_baseline_is_refused_in_one_line(document: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(
        document.encode("latin-1") if isinstance(document, str) else json.dumps(document).encode()
    )
    with pytest.raises(BaselineError) as raised:
        load(file)
    assert message in str(raised.value)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)
    if not isinstance(document, str):
        with pytest.raises(BaselineError):
            compare(document, verification(a="holds"))


def test_a_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match=r"cannot read the baseline .*: No such file or directory"):
        load(tmp_path / "none.json")
