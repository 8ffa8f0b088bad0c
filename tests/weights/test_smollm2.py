"""SmolLM2-135M, the real model, against logits and perplexities that an independent implementation gave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from proof_lm.errors import WeightsError
from proof_lm.model import ProofLM
from proof_lm.presets import preset
from proof_lm.weights import load_gguf, load_hf, load_model, save_hf
from weights.tiny import assert_same_bits, logits_of

pytestmark = pytest.mark.real


def perplexity(model: ProofLM, path: Path) -> float:
    """exp of the mean negative log-likelihood of every token but the first, given those before."""
    ids = torch.tensor([json.loads(path.read_text())])
    logits = logits_of(model, ids)[0, :-1]
    return torch.nn.functional.cross_entropy(logits.double(), ids[0, 1:]).exp().item()


def test_config_is_the_preset(smollm2: ProofLM) -> None:
    assert smollm2.config == preset("smollm2-135m")
    assert smollm2.parameter_count == 134_515_008


def test_config_of_the_original_reads_as_the_same(
    smollm2: ProofLM, smollm2_data: Path, tmp_path: Path
) -> None:
    save_hf(smollm2, tmp_path / "hf")
    (tmp_path / "hf" / "config.json").write_text((smollm2_data / "config.json").read_text())
    assert load_hf(tmp_path / "hf").config == smollm2.config


@pytest.mark.parametrize("prompt", [0, 1, 2])
def test_logits_are_the_reference_logits(prompt: int, smollm2: ProofLM, smollm2_data: Path) -> None:
    """Within 2e-4, three times what float32 and float64 of the reference itself differ by."""
    with np.load(smollm2_data / "smollm2_logits.npz") as reference:
        ids, expected = reference[f"ids{prompt}"], reference[f"logits{prompt}"]
    logits = logits_of(smollm2, torch.from_numpy(ids)[None])[0].numpy()
    assert logits.shape == expected.shape
    assert np.abs(logits - expected).max() < 2e-4


@pytest.mark.parametrize(("text", "expected"), [("hamlet", 31.349), ("apache-licence", 14.203)])
def test_perplexity_is_the_reference_perplexity(
    text: str, expected: float, smollm2: ProofLM, smollm2_data: Path
) -> None:
    assert round(perplexity(smollm2, smollm2_data / f"{text}_ids.json"), 3) == expected


def test_perplexity_tells_the_row_order(smollm2: ProofLM, smollm2_data: Path) -> None:
    """Left in GGUF's row order, queries and keys give 295: the test above can fail."""
    state = dict(smollm2.state_dict())
    for name, tensor in state.items():
        if ".attention.query." in name or ".attention.key." in name:
            halves = tensor.reshape(-1, 2, smollm2.config.head_width // 2, tensor.shape[1])
            state[name] = halves.transpose(1, 2).reshape(tensor.shape)
    with torch.device("meta"):
        scrambled = ProofLM(smollm2.config)
    scrambled.load_state_dict(state, assign=True)
    references = json.loads((smollm2_data / "smollm2_refs.json").read_text())
    expected = references["ppl_hamlet"]["ppl_if_q_k_not_unpermuted"]
    assert perplexity(scrambled.eval(), smollm2_data / "hamlet_ids.json") == pytest.approx(expected, rel=1e-4)


def test_through_our_directory_into_transformers_and_back(smollm2: ProofLM, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the peer, transformers, is not installed")
    save_hf(smollm2, tmp_path / "hf")
    assert_same_bits(smollm2, load_model(tmp_path / "hf"))
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )
    assert not any(report.values()), report
    ids = torch.tensor([[504, 3575, 282, 4649, 314]])
    with torch.inference_mode():
        expected = theirs.eval()(ids).logits
    assert (logits_of(smollm2, ids) - expected).abs().max() < 2e-4


def test_a_truncated_file_is_refused(smollm2_path: Path, tmp_path: Path) -> None:
    with smollm2_path.open("rb") as file:
        head = file.read(3_000_000)
    (tmp_path / "cut.gguf").write_bytes(head)
    with pytest.raises(WeightsError, match=r"cannot read .*cut\.gguf"):
        load_gguf(tmp_path / "cut.gguf")
