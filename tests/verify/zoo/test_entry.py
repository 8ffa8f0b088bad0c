"""What a class comes to on each backend, from the measurements of its contracts."""

import io
from collections.abc import Mapping

import pytest
from rich.console import Console

from proof_lm.verify import Bound, ContractResult, Measurement, Verdict, Verification
from proof_lm.verify.verdict import EXACT
from proof_lm.verify.zoo import EXPLAINED, Explanation, ZooEntry, decided_pairs, render_zoo, zoo_to_dict
from proof_lm.verify.zoo.entry import on_backend

BOUND = Bound(1e-12, 1e-8, "by hand")
RESIDUALS = {Verdict.HOLDS: 1e-13, Verdict.INCONCLUSIVE: 1e-10, Verdict.VIOLATED: 1.0}


def result(
    name: str, verdict: Verdict, paths: Mapping[str, Verdict] | None = None, reason: str = ""
) -> ContractResult:
    measured = [Measurement(path, "x", RESIDUALS[v], BOUND, "token 3") for path, v in (paths or {}).items()]
    return ContractResult(name, "S.", verdict, tuple(measured), reason)


def entry(*results: ContractResult, name: str = "SomeForCausalLM", n_undecided: int = 0) -> ZooEntry:
    planned = (*(r.name for r in results), *(f"later{i}" for i in range(n_undecided)))
    return ZooEntry(name, 1.0, Verification(name, 0, planned, list(results)))


H, V, Q, N = Verdict.HOLDS, Verdict.VIOLATED, Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("given", "eager", "sdpa"),
    [
        (result("c", H, {"eager": H, "sdpa": H}), H, H),
        (result("c", V, {"eager": H, "sdpa": V}), H, V),
        (result("c", V, {"eager": V, "sdpa": Q}), V, Q),
        (result("c", H, {"eager": H}), H, N),
        (result("c", V, {"-": V}), V, V),  # attention takes no part
        (result("c", N, {}, "why"), N, N),
        (result("c", V, {"eager": H}, "raised"), V, V),  # nothing says where
        (result("c", Q, {}, "the check failed"), Q, Q),
        (result("c", Q, {"eager": V, "sdpa": H}, "a fresh seed says otherwise"), Q, H),
    ],
)
def test_the_verdict_of_a_backend_is_that_of_its_measurements(
    given: ContractResult, eager: Verdict, sdpa: Verdict
) -> None:
    assert (on_backend(given, "eager"), on_backend(given, "sdpa")) == (eager, sdpa)


def test_the_worst_contract_decides_and_a_run_cut_short_decides_nothing_that_holds() -> None:
    both = entry(result("a", H, {"eager": H, "sdpa": H}), result("b", V, {"eager": H, "sdpa": V}))
    assert both.backends == ("eager", "sdpa")
    assert [both.verdict(b) for b in both.backends] == [H, V]
    assert both.of("sdpa", V) == ("b",)
    cut = entry(result("a", H, {"eager": H, "sdpa": H}), result("b", V, {"sdpa": V}), n_undecided=1)
    assert [cut.verdict(b) for b in cut.backends] == [Q, V]
    assert decided_pairs([both, cut]) == {H: 1, V: 2, Q: 1}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Explanation:
    explanation = Explanation(frozenset({"causality"}), "defect", "Position 2 sees token 5.")
    monkeypatch.setitem(EXPLAINED, "SomeForCausalLM", (explanation,))
    return explanation


def shown(*entries: ZooEntry, n_left: int = 0) -> str:
    console = Console(file=io.StringIO(), width=100)
    render_zoo(entries, console, 12.0, n_left)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_an_explained_violation_is_shown_with_its_sentence(known: Explanation) -> None:
    found = entry(result("causality", V, {"eager": V}), result("cache", V, {"eager": V}))
    assert found.known == (known,)
    assert [r.name for r in found.unexplained] == ["cache"]
    text = shown(found)
    assert "causality (defect), cache (unexplained)" in text
    assert "defect, causality: Position 2 sees token 5.\n  SomeForCausalLM\n" in text
    assert "SomeForCausalLM: unexplained: cache: eager: x = 1 at token 3" in text
    assert "1 class-backend pair decided: 0 holds, 1 violated, 0 inconclusive" in text


def test_an_explanation_of_missing_influence_explains_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = Explanation(frozenset({"causality"}), "by design", "A token sees 4 tokens.", only_reach=True)
    monkeypatch.setitem(EXPLAINED, "SomeForCausalLM", (blind,))
    missing = Measurement("eager", "min |change|", 0.0, None)
    leak = Measurement("eager", "max |change before|", 1.0, BOUND)
    only_missing = entry(ContractResult("causality", "S.", V, (missing,)))
    assert (only_missing.known, only_missing.unexplained) == ((blind,), ())
    both = entry(ContractResult("causality", "S.", V, (missing, leak)))
    assert (both.known, len(both.unexplained)) == ((), 1)


def test_rounding_explains_no_large_change(monkeypatch: pytest.MonkeyPatch) -> None:
    rounding = Explanation(frozenset({"causality"}), "rounding", "Shapes depend on later tokens.")
    monkeypatch.setitem(EXPLAINED, "SomeForCausalLM", (rounding,))
    small, large = (Measurement("eager", "max |change before|", size, EXACT) for size in (1e-6, 0.1))
    assert entry(ContractResult("causality", "S.", V, (small,))).unexplained == ()
    assert len(entry(ContractResult("causality", "S.", V, (small, large))).unexplained) == 1


def test_an_explanation_of_what_is_no_longer_violated_is_pointed_out(known: Explanation) -> None:
    mended = entry(result("causality", H, {"eager": H}))
    assert mended.outdated == (known,)
    assert "SomeForCausalLM: explained, and no longer found: Position 2 sees token 5." in shown(mended)
    assert entry(result("cache", H, {"eager": H})).outdated == ()  # it was not judged by causality
    assert entry(result("causality", Q, {"eager": Q})).outdated == ()


def test_what_did_not_run_is_named_and_text_from_outside_is_escaped() -> None:
    text = shown(ZooEntry("Odd[red]", 0.1, None, "it said [bold]no[/]"), n_left=3)
    assert "not runnable: Odd[red]: it said [bold]no[/]" in text
    assert "1 class, 1 not runnable, 3 not come to; 0 class-backend pairs" in text


def test_the_document_has_each_class_and_backend(known: Explanation) -> None:
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    odd = ZooEntry("Odd", 0.1, None, "no")
    found = entry(result("causality", V, {"eager": V, "sdpa": H}))
    document = zoo_to_dict([odd, found], level="quick", seconds=2.0, left=["Late"])
    assert (document["format"], document["version"]) == ("proof-lm/zoo", 1)
    assert document["pairs"] == {"holds": 1, "violated": 1, "inconclusive": 0}
    assert document["not_come_to"] == ["Late"]
    first, second = document["classes"]
    assert (first["not_runnable"], first["backends"]) == ("no", {})
    assert second["backends"]["sdpa"]["verdict"] == "holds"
    assert second["backends"]["eager"]["contracts"]["violated"] == ["causality"]
    assert second["explanations"][0]["sentence"] == known.sentence
