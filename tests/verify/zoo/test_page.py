"""The page of the zoo, read by a parser."""

import re

import pytest

from proof_lm.verify import Verdict, Verification
from proof_lm.verify.verdict import ContractResult
from proof_lm.verify.zoo import EXPLAINED, Explanation, ZooEntry, zoo_to_html
from verify.report import samples
from verify.report.test_page import Page

pytest.importorskip("transformers", reason="the extra hf is not installed")
HOSTILE = f"odd{samples.SCRIPT}\u202e"
SHOWN = HOSTILE.replace("\u202e", "\\u202e")


def leak(contract: str, *, reason: str = "") -> ContractResult:
    measured = (samples.LEAK, samples.NAN, samples.SMALL)
    return ContractResult(contract, "No token moves an earlier one.", Verdict.VIOLATED, measured, reason)


def entry(name: str, *results: ContractResult, undecided: str = "", reason: str = "") -> ZooEntry:
    planned = (*(result.name for result in results), *undecided.split())
    return ZooEntry(name, 1.0, Verification(name, 0, planned, list(results)), reason)


def mixed() -> list[ZooEntry]:
    """A class of each kind, with mischief wherever text comes from outside."""
    between = ContractResult("prefix", "A beginning stays.", Verdict.INCONCLUSIVE, (samples.BETWEEN,))
    return [
        entry("SoundForCausalLM", samples.holding("causality")),
        entry("KnownForCausalLM", leak("causality")),
        entry(HOSTILE, leak("cache", reason=samples.REASON), undecided="padding", reason=samples.SCRIPT),
        entry("OpenForCausalLM", samples.holding("cache"), between),
        entry("MendedForCausalLM", samples.holding("causality")),
        ZooEntry("WithoutTimm", 0.1, None, f"no timm {samples.SCRIPT}"),
    ]


def html(entries: list[ZooEntry], *left: str) -> str:
    command = f"proof-lm zoo --only {samples.SCRIPT}"
    return zoo_to_html(entries, command=command, level="quick", seconds=12.0, left=left)


@pytest.fixture(autouse=True)
def _explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KnownForCausalLM", "MendedForCausalLM"):
        known = Explanation(frozenset({"causality"}), "defect", f"It reads ahead {samples.SCRIPT}.")
        monkeypatch.setitem(EXPLAINED, name, (known,))


@pytest.fixture
def page() -> Page:
    return Page(html(mixed(), "LateForCausalLM", samples.SCRIPT))


def test_it_says_what_came_of_each_class_and_why(page: Page) -> None:
    order = [
        "Causal language models of transformers",
        "✕ not all is explained 6 classes, 1 not runnable, 2 not come to; 6 class-backend pairs decided: 2 holds,",
        "2 holds 4 violated 1 inconclusive 1 not runnable 2 not come to",
        f"What to look at {SHOWN} cache : No token moves an earlier one.",
        f"MendedForCausalLM Explained, and no longer found (causality): It reads ahead {samples.SCRIPT}.",
        "5 classes; columns are attention backends class explicit fused",
        "Sound For Causal LM ✓ holds none",
        "Known For Causal LM ✕ violated ✕ violated causality defect No token moves an earlier one.",
        f"Defect : It reads ahead {samples.SCRIPT}.",
        "fused: max |change| = nan, must not exceed 1e-12",
        "explicit: max |change| = 0.5, must be 0 exactly, at row 1: token 3 moves position 2 <script>",
        f"{SHOWN} ✕ violated",
        "cache not explained",
        f"Cut short: {samples.SCRIPT} Not decided: padding",
        "Open For Causal LM",
        "prefix ? inconclusive",
        "max |difference| = 1e-09",
        f"Not runnable WithoutTimm no timm {samples.SCRIPT}",
        f"Not come to The run was interrupted before these were judged: LateForCausalLM, {samples.SCRIPT}.",
        f"This run command proof-lm zoo --only {samples.SCRIPT} level quick time 12 s proof_lm",
        "transformers",
    ]
    start = 0
    for part in order:
        assert part in page.text[start:], (part, page.text[start:])
        start = page.text.index(part, start)


def test_text_from_outside_stays_text_and_nothing_else_is_needed(page: Page) -> None:
    assert not page.attributes("script")
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert re.match(r"#|data:,$", attributes.get("href") or "#")
        assert "src" not in attributes
    (style,) = [data for tag, data in page.texts if tag == "style"]
    assert "url(" not in style
    policy = [meta["content"] for meta in page.attributes("meta") if "http-equiv" in meta]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_it_can_be_found_one_s_way_in_without_seeing_it(page: Page) -> None:
    tags = [tag for tag, _ in page.elements]
    assert [tags.count(tag) for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(link["href"])[1:] for link in page.attributes("a")} <= set(ids)
    assert tags.count("caption") == tags.count("table") == 1
    scopes = [cell["scope"] for cell in page.attributes("th")]
    assert scopes == ["col"] * 3 + ["rowgroup"] * 5
    (scroller,) = [div for div in page.attributes("div") if div.get("role") == "region"]
    assert (scroller["tabindex"], scroller["aria-label"]) == ("0", "Table of classes by backend")


@pytest.mark.parametrize(
    ("entries", "left", "says"),
    [
        ([entry("SoundForCausalLM", samples.holding("causality"))], (), "✓ nothing is violated"),
        ([entry("KnownForCausalLM", leak("causality"))], (), "✓ all that is violated is explained"),
        ([entry("KnownForCausalLM", leak("causality"))], ("Late",), "? not all is decided"),
        ([ZooEntry("WithoutTimm", 0.1, None, "no timm")], (), "? not all is decided"),
        (
            [entry("MendedForCausalLM", samples.holding("causality"))],
            (),
            "✕ not all that is explained is found",
        ),
    ],
)
def test_the_first_word_is_what_the_exit_status_means(
    entries: list[ZooEntry], left: tuple[str, ...], says: str
) -> None:
    assert f"{says} 1 class, " in Page(html(entries, *left)).text


def test_a_run_in_which_all_is_explained_is_short_of_all_that() -> None:
    text = Page(html([entry("KnownForCausalLM", leak("causality"))])).text
    for absent in ("What to look at", "Not runnable", "Not come to", "Cut short", "Not decided"):
        assert absent not in text
