"""Decoders that are not ours: the right ones are accepted, and nineteen faults are rejected."""

from pathlib import Path

import pytest
from torch import nn

from proof_lm.verify import ForeignSubject, Level, Verdict, Verification, at_level, verify
from proof_lm.verify.maps import read_map
from verify.foreign import torch_nn_decoder
from verify.foreign.in_our_terms import CORRECT

MAPS = Path(__file__).parent / "foreign"
UNSEEN = {
    "rope-pairing": "the same function of permuted rows of the query and key weights",
    "gqa-interleaved": "the same function of permuted query heads",
    "scale-missing": "the same function of smaller query weights",
    "gate-and-up-swapped": "a gated layer of other weights",
    "untied": "nothing says that the two matrices should be one",
    "positions-ignore-the-mask": "a caller may be meant to give positions",
}
"""Faults that no behaviour shows where no config is declared, and why."""


def _judge(
    name: str, module: nn.Module, map_file: str | None = None, level: Level = "standard"
) -> Verification:
    weight_map = None if map_file is None else read_map(MAPS / map_file, module)
    return verify(ForeignSubject(name, module, weight_map=weight_map), level=level)


def _is_rejected(fault: str, map_file: str | None = None) -> bool:
    """By the quick level, or else by the standard one."""
    return any(
        _judge(fault, torch_nn_decoder.faulty(fault), map_file, level).count(Verdict.VIOLATED)
        for level in ("quick", "standard")
    )


def _against(verification: Verification) -> dict[str, str]:
    fine = (Verdict.HOLDS, Verdict.NOT_APPLICABLE)
    return {
        result.name: f"{result.verdict.value}: {result.reason or result.worst}"
        for result in verification.results
        if result.verdict not in fine
    }


@pytest.mark.parametrize("name", CORRECT)
def test_a_right_decoder_of_another_project_is_accepted(name: str) -> None:
    assert _against(_judge(name, CORRECT[name].build())) == {}


@pytest.mark.parametrize(
    ("build", "map_file"),
    [
        (torch_nn_decoder.correct, "torch_nn_decoder.json"),
        (torch_nn_decoder.correct_tied, "torch_nn_decoder_tied.json"),
    ],
)
def test_a_right_decoder_with_a_declared_config_is_accepted(build: object, map_file: str) -> None:
    verification = _judge("right", build(), map_file)
    assert _against(verification) == {}
    assert "oracle-gradients" in {r.name for r in verification.results if r.verdict is Verdict.HOLDS}


@pytest.mark.no_cover
@pytest.mark.parametrize("fault", torch_nn_decoder.FAULTS)
def test_every_fault_is_rejected_when_the_config_is_declared(fault: str) -> None:
    map_file = "torch_nn_decoder_tied.json" if fault == "untied" else "torch_nn_decoder.json"
    assert _is_rejected(fault, map_file)


@pytest.mark.no_cover
@pytest.mark.parametrize("fault", [fault for fault in torch_nn_decoder.FAULTS if fault not in UNSEEN])
def test_what_behaviour_can_show_is_rejected_without_a_config(fault: str) -> None:
    assert _is_rejected(fault)


def test_thirteen_of_nineteen_need_no_config() -> None:
    assert len(torch_nn_decoder.FAULTS) == 19
    assert set(UNSEEN) < set(torch_nn_decoder.FAULTS)
    assert len(torch_nn_decoder.FAULTS) - len(UNSEEN) >= 13


def test_the_level_decides_what_is_looked_at() -> None:
    names = {level: [c.name for c in at_level(level)] for level in ("quick", "standard", "thorough")}
    assert set(names["quick"]) < set(names["standard"]) <= set(names["thorough"])
