"""What a person and a machine read."""

import io
import json
import math

import pytest
from rich.console import Console

from proof_lm.verify.report import from_dict, render, to_dict
from proof_lm.verify.verdict import EXACT, Bound, Case, ContractResult, Measurement, Verdict, Verification

BOUND = Bound(rounding=1e-12, fault=1e-7, derivation="derived [somehow]")


def test_the_table_fits_80_columns_and_violations_say_where() -> None:
    lines = _rendered(_verification(), width=80).splitlines()
    table = lines[: next(i for i, line in enumerate(lines) if not line.strip())]
    assert all(len(line) <= 80 for line in table)
    text = "\n".join(lines)
    assert "causality: violated" in text
    assert "explicit: max |change| = 0.5, must not exceed 0, at row 1: token 3 moves position 2" in text
    assert "not applicable: rope" in text
    assert "nothing [is] rotated" in text
    assert "1 holds, 1 violated, 1 not applicable; 3 of 4 contracts decided" in text
    assert "not decided: padding" in text


def test_the_json_is_strict_and_complete() -> None:
    document = json.loads(json.dumps(to_dict(_verification()), allow_nan=False))
    assert document["format"] == "proof-lm/verification"
    assert document["version"] == 3
    assert document["exit_status"] == 1
    assert document["undecided"] == ["padding"]
    assert document["counts"] == {"holds": 1, "violated": 1, "inconclusive": 0, "not applicable": 1}
    causality = document["contracts"][1]
    assert [m["verdict"] for m in causality["measurements"]] == ["violated", "violated", "violated"]
    assert causality["measurements"][1]["measured"] == "nan"
    assert causality["measurements"][2]["bound"] is None
    assert document["contracts"][0]["measurements"][0]["derivation"] == "derived [somehow]"


def test_the_json_is_read_back_whole() -> None:
    written = _verification()
    read = from_dict(json.loads(json.dumps(to_dict(written), allow_nan=False)))
    assert repr(read) == repr(written)  # NaN does not equal itself


def test_what_is_no_verification_is_refused() -> None:
    with pytest.raises(ValueError, match="not a verification of version 3"):
        from_dict(to_dict(_verification()) | {"version": 1})


def _verification() -> Verification:
    leak = Measurement("explicit", "max |change|", 0.5, EXACT, "row 1: token 3 moves position 2")
    nan = Measurement("fused", "max |change|", math.nan, BOUND)
    reach = Measurement("fused", "min |change|", 0.0, None)
    results = [
        ContractResult(
            "oracle-logits", "Equal.", Verdict.HOLDS, (Measurement("explicit", "q", 1e-15, BOUND),), "", 1.0
        ),
        ContractResult(
            "causality", "No leak.", Verdict.VIOLATED, (leak, nan, reach), smallest=Case(0, 1, 3, leak)
        ),
        ContractResult("rope", "Turns.", Verdict.NOT_APPLICABLE, reason="nothing [is] rotated"),
    ]
    return Verification("a [bold] name", 0, ("oracle-logits", "causality", "rope", "padding"), results)


def _rendered(verification: Verification, width: int) -> str:
    stream = io.StringIO()
    console = Console(width=width, file=stream)
    render(verification, console)
    return stream.getvalue()
