"""Planting in the decoders of a running process, and which faults count."""

from __future__ import annotations

import copy
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proof_lm.errors import TargetError
from proof_lm.model import ProofLM
from proof_lm.verify import MUTANTS, Mutant
from proof_lm.verify.suite import Examined, Outcome, Score, Suite, runs
from proof_lm.verify.suite.applicable import _judged, why_not_shown
from proof_lm.verify.suite.events import Events, read_events
from proof_lm.verify.suite.planting import answer_for, plant, plant_in_each
from sizes import LEARNED, MODERN, SMALL

EXAMPLE = Path(__file__).parents[2] / "examples" / "suite" / "tiny_decoder.py"
LARGE = SMALL.with_(vocab_size=50257, d_model=768, n_layers=12)
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.fixture
def events(tmp_path: Path) -> Events:
    path = tmp_path / "events"
    path.touch()
    return Events(path)


@pytest.fixture
def planted_in_each(monkeypatch: pytest.MonkeyPatch, events: Events) -> Callable[[str], None]:
    """Plants in every ProofLM, until the test ends."""
    monkeypatch.setattr(ProofLM, "__init__", ProofLM.__init__)  # what is put back
    return lambda name: plant_in_each(ProofLM, BY_NAME[name], events)


@pytest.fixture
def theirs() -> ModuleType:
    """The example's module, loaded anew, since planting changes its class."""
    spec = importlib.util.spec_from_file_location("tiny_decoder", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kinds(events: Events) -> list[str]:
    return [event["kind"] for event in read_events(events.path)]


def leaks(model: nn.Module, n_tokens: int = 11) -> bool:
    """Whether the last token moves the first logit."""
    ids = torch.arange(n_tokens)[None]
    other = ids.clone()
    other[0, -1] = 29
    return not torch.equal(model(ids)[0][0, 0], model(other)[0][0, 0])


def scatter(model: nn.Module) -> None:
    """Weights on which a fault shows."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(noise / weight.shape[1] ** 0.5 if weight.dim() > 1 else 1.0 + 0.3 * noise)


def test_every_new_decoder_has_the_fault(planted_in_each: Callable[[str], None], events: Events) -> None:
    assert not leaks(ProofLM(SMALL))
    planted_in_each("no-causal-mask")
    model = ProofLM(config=SMALL, attention_backend="explicit")
    assert leaks(model)
    assert leaks(copy.deepcopy(model))
    assert model.attention_backend == "explicit"
    assert kinds(events) == ["made", "planted"]


def test_weights_and_later_random_numbers_are_those_of_the_sound_run(
    planted_in_each: Callable[[str], None],
) -> None:
    torch.manual_seed(3)
    sound, drawn = ProofLM(SMALL), torch.rand(4)
    for name in ("no-causal-mask", "init-uniform"):
        planted_in_each(name)
        torch.manual_seed(3)
        faulty = ProofLM(SMALL)
        assert torch.equal(torch.rand(4), drawn)
        same = torch.equal(faulty.blocks[0].attention.query.weight, sound.blocks[0].attention.query.weight)
        assert same == (name == "no-causal-mask")


def test_a_fault_of_the_constructor_runs_its_own(planted_in_each: Callable[[str], None]) -> None:
    planted_in_each("layers-start-alike")
    blocks = ProofLM(SMALL).blocks
    assert torch.equal(blocks[0].feed_forward.up.weight, blocks[1].feed_forward.up.weight)


@pytest.mark.usefixtures("planted_in_each")  # puts back what is planted
def test_a_fault_that_does_not_fit_leaves_the_decoder_sound(events: Events) -> None:
    def breaks_off(model: ProofLM) -> None:
        BY_NAME["constant"].plant(model)
        del model.blocks[1]
        raise AssertionError("half of it is planted")

    torch.manual_seed(3)
    sound = ProofLM(SMALL)
    plant_in_each(ProofLM, Mutant("breaks-off", "A fault.", ("cache",), breaks_off), events)
    torch.manual_seed(3)
    model = ProofLM(SMALL)
    assert type(model) is ProofLM
    assert model.state_dict().keys() == sound.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, sound.state_dict()[name])
    assert kinds(events) == ["made", "refused"]


def test_a_subclass_stays_as_it_is(planted_in_each: Callable[[str], None], events: Events) -> None:
    class Own(ProofLM):
        pass

    planted_in_each("no-causal-mask")
    assert not leaks(Own(SMALL))
    assert kinds(events) == []


@pytest.mark.parametrize("padded", [False, True])
def test_the_sound_stand_in_gives_logits_loss_and_gradients_of_the_class_itself(
    padded: bool, theirs: ModuleType, events: Events
) -> None:
    model = theirs.TinyDecoder().double()
    scatter(model)
    ids, labels = torch.randint(31, (2, 3, 13))
    real = torch.arange(13)[None] >= torch.arange(3)[:, None]
    labels[~real] = -100
    given = {"labels": labels} | ({"attention_mask": real.long()} if padded else {})
    logits, loss = model(ids, **given)
    expected = torch.autograd.grad(loss, list(model.parameters()))
    answer_for(theirs.TinyDecoder, None, None, events)
    found, found_loss = model(ids, **given)
    torch.testing.assert_close(found[real], logits[real])
    assert not torch.equal(found, logits)  # it is another computation
    torch.testing.assert_close(found_loss, loss)
    found_loss.backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert model(ids, **given)[1] < loss
    assert kinds(events) == ["mapped"]


def test_the_fault_shows_in_their_decoder(theirs: ModuleType, events: Events) -> None:
    answer_for(theirs.TinyDecoder, BY_NAME["no-causal-mask"], None, events)
    model = theirs.TinyDecoder()
    scatter(model)
    assert leaks(model)
    assert kinds(events) == ["mapped", "planted"]
    (mapped,) = (event for event in read_events(events.path) if event["kind"] == "mapped")
    assert mapped["config"]["n_kv_heads"] == 3
    assert mapped["absent"]["cache"].startswith("forward takes none of")
    assert "padding mask" not in mapped["absent"]


def test_a_half_precision_decoder_is_answered_in_its_own_dtype(theirs: ModuleType, events: Events) -> None:
    answer_for(theirs.TinyDecoder, None, None, events)
    model = theirs.TinyDecoder().bfloat16()
    assert model(torch.arange(7)[None])[0].dtype == torch.bfloat16
    assert model.double()(torch.arange(7)[None])[0].dtype == torch.float64


FORMS: Mapping[str, Callable[[Tensor, Tensor | None], Any]] = {
    "tensor": lambda logits, loss: logits,
    "loss first": lambda logits, loss: (logits,) if loss is None else (loss, logits),
    "list": lambda logits, loss: [logits, loss],
    "mapping": lambda logits, loss: {"logits": logits, "loss": loss, "other": 5},
    "object": lambda logits, loss: SimpleNamespace(logits=logits, loss=loss, other=5),
    "last position": lambda logits, loss: (logits[:, -1:] if loss is None else logits, loss),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_comes_back_has_the_form_that_the_class_gives_it(
    form: str, theirs: ModuleType, events: Events
) -> None:
    class Formed(theirs.TinyDecoder):  # type: ignore[misc, name-defined]
        def forward(self, token_ids: Tensor, labels: Tensor | None = None) -> Any:
            return FORMS[form](*super().forward(token_ids, labels))

    model = Formed().double()
    scatter(model)
    ids = torch.arange(7)[None]
    plain, given = model(ids), model(ids, ids)
    answer_for(Formed, None, None, events)
    for expected, found in ((plain, model(ids)), (given, model(ids, ids))):
        assert type(found) is type(expected)
        pairs = zip(_values(found), _values(expected), strict=True)
        for value, wanted in pairs:
            if isinstance(wanted, Tensor):
                torch.testing.assert_close(value, wanted)
            else:
                assert value == wanted


@pytest.mark.parametrize("form", FORMS)
def test_the_fault_shows_in_whatever_form(form: str, theirs: ModuleType, events: Events) -> None:
    class Formed(theirs.TinyDecoder):  # type: ignore[misc, name-defined]
        def forward(self, token_ids: Tensor, labels: Tensor | None = None) -> Any:
            return FORMS[form](*super().forward(token_ids, labels))

    model = Formed().double()
    ids = torch.arange(7)[None]
    answer_for(Formed, BY_NAME["constant"], None, events)
    found = _values(model(ids) if form == "tensor" else model(ids, ids))
    logits = next(value for value in found if isinstance(value, Tensor) and value.dim() == 3)
    assert torch.equal(logits, torch.arange(31.0).double().expand_as(logits))  # what this fault gives


def test_a_change_of_dtype_reaches_what_the_fault_keeps(theirs: ModuleType, events: Events) -> None:
    answer_for(theirs.TinyDecoder, BY_NAME["rope-frequencies-cast"], None, events)
    model = theirs.TinyDecoder().double()
    scatter(model)
    ids, weights = torch.arange(13)[None], copy.deepcopy(model.state_dict())
    before = model(ids)[0]
    model.bfloat16()(ids)
    model.double().load_state_dict(weights)
    assert not torch.allclose(model(ids)[0], before)


def _values(returned: Any) -> list[Any]:
    if isinstance(returned, Tensor):
        return [returned]
    if isinstance(returned, tuple | list):
        return list(returned)
    return list((returned if isinstance(returned, dict) else vars(returned)).values())


def test_calls_that_are_not_understood_are_the_class_s_own(theirs: ModuleType, events: Events) -> None:
    class Wider(theirs.TinyDecoder):  # type: ignore[misc, name-defined]
        def forward(self, token_ids: Tensor, *, temperature: float | None = None) -> Tensor:
            return super().forward(token_ids)[0] / (temperature or 1.0)

    answer_for(Wider, BY_NAME["no-causal-mask"], None, events)
    model = Wider()
    scatter(model)
    ids = torch.arange(7)[None]
    assert not torch.equal(2.0 * model(ids, temperature=2.0), model(ids))
    with pytest.raises(TypeError, match="unexpected"):
        model(ids, pressure=1.0)
    told = [event["why"] for event in read_events(events.path) if event["kind"] == "passed"]
    assert told[0] == "a call with temperature"


def test_a_class_that_is_no_reference_is_not_answered_for(theirs: ModuleType, events: Events) -> None:
    class Doubled(theirs.TinyDecoder):  # type: ignore[misc, name-defined]
        def forward(self, token_ids: Tensor) -> Tensor:
            return 2.0 * super().forward(token_ids)[0]

    answer_for(Doubled, None, None, events)
    model = Doubled()
    ids = torch.arange(7)[None]
    assert torch.equal(model(ids), 2.0 * theirs.TinyDecoder.forward(model, ids)[0])
    (event,) = read_events(events.path)
    assert event["kind"] == "unmapped"
    assert "gives other logits" in event["why"]


def test_the_place_must_be_a_module_class(
    theirs: ModuleType, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROOF_LM_SUITE_EVENTS", str(events.path))
    monkeypatch.setenv("PROOF_LM_SUITE_IN", "tiny_decoder:torch")
    with pytest.raises(TargetError, match="has no such subclass"):
        plant(theirs)


@pytest.mark.parametrize(
    ("name", "config", "absent", "stands_in", "why"),
    [
        ("no-causal-mask", SMALL, {}, False, ""),
        ("no-causal-mask", MODERN, {}, True, ""),
        ("kv-heads-tiled", SMALL, {}, True, ""),
        ("kv-heads-tiled", SMALL.with_(n_kv_heads=6), {}, False, "changes nothing"),
        ("rounded-before-gain", SMALL, {}, False, "needs norm = rmsnorm"),
        ("position-skipped-for-one-token", SMALL, {}, False, "needs position = learned"),  # it raises there
        ("cache-not-reordered", SMALL, {}, False, ""),
        ("cache-not-reordered", SMALL, {"cache": "it has no cache"}, True, "it has no cache"),
        ("positions-count-padding", LEARNED, {}, True, ""),
        ("unused-parameter", SMALL, {}, False, ""),
        ("unused-parameter", SMALL, {}, True, "the class has its own"),
        ("forgotten-on-saving", SMALL, {}, True, "outside of its forward"),
        ("labels-overwritten", SMALL, {}, True, "labels are converted"),
        ("kv-heads-tiled", LARGE, {}, False, ""),
        ("kv-heads-tiled", LARGE.with_(n_kv_heads=6), {}, False, "changes nothing"),
        ("kv-heads-tiled", LARGE.with_(n_kv_heads=1), {}, False, "changes nothing"),
    ],
)
def test_a_fault_counts_only_where_something_could_notice_it(
    name: str, config: Any, absent: dict[str, str], stands_in: bool, why: str
) -> None:
    found = why_not_shown(BY_NAME[name], config, absent, stands_in=stands_in)
    assert (found == "") == (why == "")
    assert why in found


def test_a_large_decoder_is_judged_in_small_and_a_small_one_as_it_is() -> None:
    assert _judged(SMALL.with_(d_ff=41)).d_ff == 41
    assert _judged(LARGE) == SMALL  # whose sizes are those of the mutants' base
    assert _judged(LARGE.with_(sliding_window=100)).sliding_window == 3


def test_events_are_told_once_and_a_line_that_was_cut_off_is_left_out(events: Events) -> None:
    events.tell("refused", why="a")
    events.tell("refused", why="a")
    events.tell("planted")
    with events.path.open("a") as file:
        file.write('{"kind": "pla')
    assert [event.get("why") for event in read_events(events.path)] == ["a", None]
    assert len(events.path.read_text().splitlines()) == 3


def test_gaps_are_named_by_what_they_are_about_the_largest_first() -> None:
    def outcome(name: str, contracts: tuple[str, ...], result: runs.Result) -> Outcome:
        return Outcome(Mutant(name, "A fault.", contracts, lambda model: None), result)

    score = Score(
        Suite(("true",)),
        Examined((SMALL,), {}, (), 1.0),
        [
            outcome("a", ("oracle-logits", "rope"), "missed"),
            outcome("b", ("cache",), "missed"),
            outcome("c", ("cache", "rope"), "missed"),
            outcome("d", ("rope",), "noticed"),
            outcome("e", ("rope",), "timed out"),
            outcome("f", ("padding",), "not planted"),
            outcome("g", ("oracle-logits",), "noticed"),
        ],
    )
    assert [(about, [o.mutant.name for o in missed], n) for about, missed, n in score.gaps()] == [
        ("cache", ["b", "c"], 2),
        ("rope", ["a"], 3),
    ]
    assert (score.n_noticed, score.n_planted, score.exit_status) == (3, 6, 1)
    score.outcomes = score.of("noticed", "timed out", "not planted")
    assert score.exit_status == 0
    score.outcomes = score.of("not planted")
    assert score.exit_status == 1  # nothing was shown


def test_start_up_is_cheap_and_lets_another_sitecustomize_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("MARK = 5\n")
    program = (
        "import sys, sitecustomize; assert sitecustomize.MARK == 5; "
        "assert not {'torch', 'proof_lm'} & set(sys.modules); print([p for p in sys.path if 'startup' in p])"
    )
    environment = {
        "PYTHONPATH": f"{runs.STARTUP}:{tmp_path}",
        "PROOF_LM_SUITE_EVENTS": str(tmp_path / "events"),
    }
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"
