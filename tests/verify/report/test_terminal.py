"""What a person reads in a terminal."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from proof_lm.verify.report import render
from proof_lm.verify.verdict import Verdict, Verification
from verify.report import samples


def rendered(verification: Verification, width: int = 80) -> str:
    stream = io.StringIO()
    render(verification, Console(width=width, file=stream))
    return stream.getvalue()


def test_what_matters_comes_first() -> None:
    text = rendered(samples.mixed())
    order = [
        "a [bold] `name`",
        "1 contract is violated, 1 holds, 1 is inconclusive, 1 does not apply, 1 was not decided",
        "causality: violated. No token moves an earlier one.",
        "fused: max |change| = nan, must not exceed 1e-12",
        "smallest case: 1 row of 3 tokens",
        "prefix: inconclusive. A beginning stays.",
        "diagnosis: behaves as",
        "proof-lm verify --explain causality",
        "contract       verdict",
        "not applicable: rope",
        "1 holds, 1 violated, 1 inconclusive, 1 not applicable; 4 of 5 contracts decided in 1.2 s;",
    ]
    # a line break is a space that was turned
    flat = " ".join(text.split())
    places = [flat.find(" ".join(part.split())) for part in order]
    assert -1 not in places, dict(zip(order, places, strict=True))
    assert places == sorted(places)


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_but_the_last_is_longer_than_the_terminal(width: int) -> None:
    *lines, last = rendered(samples.mixed(), width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert last.endswith("not decided: padding")


def test_evidence_goes_on_under_its_beginning() -> None:
    lines = rendered(samples.mixed()).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  smallest case: "))
    assert lines[start + 1].startswith("  ")
    assert not any(line.endswith(" ") for line in lines[: lines.index("next:")])


def test_the_worst_measurement_stands_for_all() -> None:
    text = rendered(samples.mixed())
    assert "fused: max |change| = nan" in text
    assert "and 3 more; --json FILE writes them all" in text
    assert "min |change|" not in text


def test_what_holds_needs_no_next_step() -> None:
    text = rendered(samples.sound())
    assert text.splitlines()[1].rstrip() == "all 2 contracts that apply hold, 1 does not apply"
    assert "next:" not in text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"results": []}, "nothing was shown to hold, 3 were not decided"),
        ({"results": [samples.holding("oracle-logits")]}, "not all is decided, 1 holds, 2 were not decided"),
        (
            {"planned": ("oracle-logits",), "results": [samples.holding("oracle-logits")]},
            "the one contract that applies",
        ),
    ],
)
def test_runs_that_were_cut_short_say_so(changed: dict[str, object], said: str) -> None:
    assert said in rendered(replace(samples.sound(), **changed))


def test_without_a_map_a_map_is_offered() -> None:
    verification = replace(samples.mixed(), diagnosis="")
    assert "--map FILE" not in rendered(verification)
    verification.results[0] = replace(
        verification.results[0], verdict=Verdict.NOT_APPLICABLE, reason="no map"
    )
    assert "--map FILE" in rendered(verification)


def test_text_of_the_subject_drives_no_terminal() -> None:
    text = rendered(samples.mixed())
    assert r"\x1b[31m\u202e" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "nothing [is] *rotated*" in text
