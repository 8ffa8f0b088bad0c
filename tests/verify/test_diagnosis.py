"""A mapped subject's fault is named, or the component where it begins."""

from pathlib import Path

import pytest
from torch import Tensor

from proof_lm.model import ProofLM
from proof_lm.verify import ForeignSubject, ProofSubject, Verdict, diagnose, randomized, verify
from proof_lm.verify.maps import read_map
from sizes import SMALL
from verify.foreign import nanogpt_style, torch_nn_decoder

MAPS = Path(__file__).parent / "foreign"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine, every fault is tried."""
    monkeypatch.setattr("proof_lm.verify.diagnosis.PATIENCE", 600.0)


BEHAVES_AS = {
    "mask-off-by-one": "mask-off-by-one",
    "leak-only-in-row-0": "leak-in-first-row",
    "heads-merged-without-transpose": "heads-merged-without-transpose",
    "batch-mixing": "batch-mixing",
    "attention-detached": "attention-detached",
    "no-final-norm": "no-final-norm",
    "residual-detached": "skips-detached",
    "rope-on-q-only": "rope-on-queries-only",
    "rope-pairing": "rope-layout-swapped",
    "gqa-interleaved": "kv-heads-tiled",
    "gate-and-up-swapped": "gate-and-up-swapped",
    "no-residual": "no-first-skip",
    "untied": "tied-by-copy",
}
"""Faults of a decoder that is not ours, and the planted fault of ours that is the same."""


def _diagnosis(fault: str) -> str:
    module = torch_nn_decoder.faulty(fault)
    map_file = "torch_nn_decoder_tied.json" if fault == "untied" else "torch_nn_decoder.json"
    subject = ForeignSubject(fault, module, weight_map=read_map(MAPS / map_file, module))
    found = diagnose(subject, verify(subject, level="quick"))
    assert found is not None
    return str(found)


@pytest.mark.no_cover  # the others cover what this repeats
@pytest.mark.parametrize("fault", BEHAVES_AS)
def test_the_fault_of_a_foreign_decoder_is_named(fault: str) -> None:
    assert _diagnosis(fault).startswith(f"behaves as {BEHAVES_AS[fault]}:")


def test_a_fault_that_is_not_in_the_catalogue_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proof_lm.verify.diagnosis.MUTANTS", ())
    assert "first to differ from the oracle: blocks.0.feed_forward," in _diagnosis("gate-and-up-swapped")
    assert "first to differ from the oracle: blocks.0.attention," in _diagnosis("no-causal-mask")
    assert "first to differ from the oracle: logits," in _diagnosis("no-final-norm")


def test_a_sound_decoder_and_one_without_a_map_get_no_diagnosis() -> None:
    module = torch_nn_decoder.correct()
    sound = ForeignSubject("sound", module, weight_map=read_map(MAPS / "torch_nn_decoder.json", module))
    assert diagnose(sound, verify(sound, level="quick")) is None
    unmapped = ForeignSubject("unmapped", torch_nn_decoder.faulty("no-causal-mask"))
    assert diagnose(unmapped, verify(unmapped, level="quick")) is None


def test_faults_that_what_was_compared_does_not_tell_apart_are_all_named() -> None:
    told = _diagnosis("padding-ignored")
    assert "padding-ignored: Attention drops the padding mask." in told
    assert "no-causal-mask" not in told


def test_what_a_decoder_was_recognised_as_is_said() -> None:
    module = nanogpt_style.build()
    for block in module.transformer.h:
        block.mlp.register_forward_hook(lambda layer, given, fed: 0.9 * fed)
    subject = ForeignSubject("scaled", module)
    told = str(diagnose(subject, verify(subject, level="quick")))
    assert told.endswith("(read as nanoGPT, by names and shapes: --map FILE says what else it is)")
    assert "read as" not in _diagnosis("no-residual")


def test_a_subject_that_raises_gets_no_diagnosis() -> None:
    class Raises(ProofLM):
        def logits(self, hidden: Tensor) -> Tensor:
            if hidden.shape[1] > 16:
                raise RuntimeError("too long")
            return 2.0 * super().logits(hidden)

    model = randomized(SMALL, 0)
    model.__class__ = Raises
    subject = ProofSubject("raises", model)
    verification = verify(subject, level="quick")
    assert verification.count(Verdict.VIOLATED)
    assert diagnose(subject, verification) is None
