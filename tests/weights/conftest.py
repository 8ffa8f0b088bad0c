"""The real model, for the tests of weights."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proof_lm.errors import WeightsError
from proof_lm.model import ProofLM
from proof_lm.weights import find_smollm2, load_gguf

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: no test asks the network


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    try:
        return find_smollm2()
    except WeightsError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> ProofLM:
    return load_gguf(smollm2_path)


@pytest.fixture(scope="session")
def smollm2_data() -> Path:
    """Ids, logits and perplexities that others computed."""
    folder = Path(__file__).parents[2].parent / "shared" / "data" / "smollm2"
    if not folder.is_dir():
        pytest.skip("shared/data/smollm2 (reference ids and logits) is not beside this checkout")
    return folder
