"""Sound decoders that were once taken for faulty ones are accepted."""

import pytest

from proof_lm.verify import CONTRACTS, Verdict, at_level, verify
from proof_lm.verify.mutants.controls import CONTROLS, Control


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_no_contract_rejects_a_sound_decoder_that_looks_wrong(control: Control) -> None:
    verification = verify(control.build(1), at_level("standard"), seed=2, level="quick")
    for result in verification.results:
        assert result.verdict in (Verdict.HOLDS, Verdict.NOT_APPLICABLE), (
            result.name,
            result.reason,
            result.worst,
        )
    assert verification.count(Verdict.HOLDS) > len(CONTRACTS) // 2


def test_names_are_unique_and_reasons_are_sentences() -> None:
    assert len({control.name for control in CONTROLS}) == len(CONTROLS)
    assert all(control.what.endswith(".") for control in CONTROLS)
