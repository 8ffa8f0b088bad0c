"""The JSON document: strict, complete, read back whole, and what its published schema says."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from proof_lm.model import ProofLM
from proof_lm.verify import CONTRACTS, MUTANTS, ProofSubject, Verification, randomized, verify
from proof_lm.verify.influence import measure_influences
from proof_lm.verify.report import SCHEMA_VERSION, from_dict, schema, to_dict
from sizes import SMALL
from verify.report import samples

SOME = [c for c in CONTRACTS if c.name in ("input-gradients", "window", "parameter-count", "residual-path")]
NO_MASK = next(mutant for mutant in MUTANTS if mutant.name == "no-causal-mask")


def as_read(verification: Verification) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(to_dict(verification), allow_nan=False))
    return document


def judged(model: ProofLM, max_seconds: float | None = None) -> Verification:
    subject = ProofSubject("subject", model)
    verification = verify(subject, SOME, level="quick", max_seconds=max_seconds)
    verification.influences = measure_influences(subject, 0)
    return verification


def problems(document: dict[str, Any]) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(schema()).iter_errors(document)]


def test_the_json_is_strict_and_complete() -> None:
    document = as_read(samples.mixed())
    assert document["format"] == "proof-lm/verification"
    assert document["version"] == 4
    assert document["exit_status"] == 1
    assert document["undecided"] == ["padding"]
    assert document["counts"] == {"holds": 1, "violated": 1, "inconclusive": 1, "not applicable": 1}
    causality = document["contracts"][1]
    assert [m["verdict"] for m in causality["measurements"]] == ["violated"] * 4
    assert causality["measurements"][1]["measured"] == "nan"
    assert causality["measurements"][2]["bound"] is None
    assert document["contracts"][0]["measurements"][0]["derivation"] == samples.BOUND.derivation
    assert document["influences"][0]["by_intervention"][2] == [0.125, 0.0, 2.0]
    assert document["influences"][0]["by_gradient"][2][2] == "inf"
    assert document["influences"][0]["attention"][0] == {
        "layer": 1,
        "heads": [[[0.75, 0.0, 0.25], [0.5, 0.5, 0.0], [0.1, 0.2, 0.7]]],
    }


def test_the_json_is_read_back_whole() -> None:
    written = samples.mixed()
    assert repr(from_dict(as_read(written))) == repr(written)  # NaN does not equal itself


def test_what_is_no_verification_is_refused() -> None:
    with pytest.raises(ValueError, match="not a verification of version 4"):
        from_dict(to_dict(samples.mixed()) | {"version": 1})


def test_the_schema_is_one_and_of_this_version() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema()["properties"]["version"]["const"] == SCHEMA_VERSION
    assert schema()["$id"] == f"urn:proof-lm:verification:{SCHEMA_VERSION}"


def test_real_documents_are_as_the_schema_says() -> None:
    sound = judged(randomized(SMALL, 0))
    mutant = judged(NO_MASK.build())
    cut_short = judged(randomized(SMALL, 0), max_seconds=0.0)
    assert (sound.exit_status, mutant.exit_status, cut_short.exit_status) == (0, 1, 3)
    assert len(cut_short.undecided) == len(SOME)
    for verification in (sound, mutant, cut_short, samples.mixed(), samples.sound()):
        assert problems(as_read(verification)) == []


def objects(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the objects of a document are."""
    if isinstance(value, dict):
        yield place
        for key, inner in value.items():
            yield from objects(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from objects(inner, (*place, index))


def at(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        document = document[key]
    return document


def test_missing_and_additional_keys_are_refused() -> None:
    document = as_read(samples.mixed())
    n_tried = 0
    for place in objects(document):
        for key in (*at(document, place), None):
            changed = copy.deepcopy(document)
            if key is None:
                at(changed, place)["extra"] = "x"
            elif place[-1:] == ("absent",):
                continue
            else:
                del at(changed, place)[key]
            assert problems(changed), (place, key)
            n_tried += 1
    assert n_tried > 100


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("version",), 3),
        (("exit_status",), 2),
        (("level",), "slow"),
        (("seed",), "0"),
        (("counts", "holds"), -1),
        (("contracts", 0, "verdict"), "fails"),
        (("contracts", 0, "name"), "Not a name"),
        (("contracts", 0, "measurements", 0, "measured"), "much"),
        (("contracts", 0, "measurements", 0, "verdict"), "not applicable"),
        (("influences", 0, "by_gradient", 0, 0), None),
        (("influences", 0, "absent", "reason"), "x"),
    ],
)
def test_values_out_of_range_are_refused(place: tuple[Any, ...], value: object) -> None:
    document = as_read(samples.mixed())
    at(document, place[:-1])[place[-1]] = value
    assert problems(document)
