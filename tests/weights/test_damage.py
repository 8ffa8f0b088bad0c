"""Damaged and incomplete directories: an error that names the file or the tensor, and no model."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from proof_lm.errors import WeightsError
from proof_lm.model import ProofLM
from proof_lm.weights import load_hf, load_model, load_proof_lm, save_hf, save_proof_lm
from weights.tiny import LLAMA, random_model

NORM = "model.layers.1.input_layernorm.weight"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    save_hf(random_model(LLAMA, torch.float32), tmp_path / "hf")
    return tmp_path / "hf"


@pytest.fixture
def sharded(directory: Path) -> Path:
    tensors = load_file(directory / "model.safetensors")
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, directory / f"shard-{number}.safetensors")
        weight_map |= dict.fromkeys(part, f"shard-{number}.safetensors")
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return directory


def test_a_file_cut_off_anywhere_is_refused(directory: Path) -> None:
    path = directory / "model.safetensors"
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for length in (
        0,
        1,
        7,
        8,
        9,
        header // 2,
        header - 1,
        header,
        header + 1,
        len(whole) // 2,
        len(whole) - 1,
    ):
        path.write_bytes(whole[:length])
        with pytest.raises(WeightsError, match=r"cannot read .*model\.safetensors"):
            load_hf(directory)


def test_a_changed_header_byte_gives_an_error_or_the_same_tensors(directory: Path) -> None:
    """Bytes all over the header, three ways: no change of it makes other weights out of the file."""
    path = directory / "model.safetensors"
    whole = path.read_bytes()
    right = load_hf(directory).state_dict()
    header = 8 + int.from_bytes(whole[:8], "little")
    refused = 0
    for position in range(0, header, 11):
        for flip in (0x01, 0x0F, 0x80):
            damaged = bytearray(whole)
            damaged[position] ^= flip
            path.write_bytes(damaged)
            try:
                state = load_hf(directory).state_dict()
            except WeightsError as error:
                assert str(directory) in str(error)  # noqa: PT017 - either outcome is right
                refused += 1
            else:
                assert all(torch.equal(state[name], tensor) for name, tensor in right.items()), position
    assert refused > 3 * header // 11 * 0.9


def test_missing_unexpected_and_misshapen_tensors_are_all_listed(directory: Path) -> None:
    path = directory / "model.safetensors"
    tensors = load_file(path)
    del tensors[NORM]
    tensors["model.layers.2.input_layernorm.weight"] = torch.ones(24)
    tensors["model.layers.0.self_attn.k_proj.weight"] = tensors[
        "model.layers.0.self_attn.k_proj.weight"
    ].T.contiguous()
    save_file(tensors, path)
    with pytest.raises(WeightsError) as caught:
        load_hf(directory)
    for part in (
        f"1 missing: {NORM}",
        "1 unexpected: model.layers.2.input_layernorm.weight",
        "1 of the wrong shape: model.layers.0.self_attn.k_proj.weight (expected [20, 24], found [24, 20])",
    ):
        assert part in str(caught.value)


def test_many_missing_tensors_are_counted(directory: Path) -> None:
    path = directory / "model.safetensors"
    norms = {name: tensor for name, tensor in load_file(path).items() if "norm" in name}
    save_file(norms, path)
    with pytest.raises(WeightsError, match=r"16 missing: lm_head\.weight, .* and 11 more"):
        load_hf(directory)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.int32])
def test_a_tensor_that_is_not_plain_floating_point_is_refused(dtype: torch.dtype, directory: Path) -> None:
    path = directory / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {NORM: tensors[NORM].to(dtype)}, path)
    with pytest.raises(WeightsError, match=f"{NORM} is stored as .*quantised"):
        load_hf(directory)


def test_shards_load_and_a_missing_one_is_named(sharded: Path) -> None:
    assert torch.equal(
        load_hf(sharded).state_dict()["final_norm.weight"],
        random_model(LLAMA, torch.float32).state_dict()["final_norm.weight"],
    )
    (sharded / "shard-1.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"names shard-1\.safetensors, which is missing"):
        load_hf(sharded)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({NORM: "shard-0.safetensors"}, "disagree over"),
        ({NORM: "../elsewhere.safetensors"}, "not a file beside it"),
        ({NORM: 3}, "no weight_map"),
        (None, "no weight_map"),
    ],
    ids=["incomplete", "outside", "no name", "none"],
)
def test_a_wrong_index_is_refused(weight_map: object, message: str, sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(WeightsError, match=message):
        load_hf(sharded)


def test_a_tensor_in_two_shards_is_refused(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    save_file(load_file(sharded / "shard-0.safetensors"), sharded / "shard-2.safetensors")
    index.write_text(json.dumps({"weight_map": weight_map | {"again": "shard-2.safetensors"}}))
    with pytest.raises(WeightsError, match=r"is both in .*shard-0\.safetensors and in .*shard-2"):
        load_hf(sharded)


class Bomb:
    """Pickled, it raises when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (pytest.fail, ("a pickled file was opened",))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth", "last.ckpt"])
def test_a_pickled_file_is_named_and_never_opened(name: str, directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    (directory / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(WeightsError, match=f"{name} may be pickled.*only safetensors are read"):
        load_hf(directory)


@pytest.mark.parametrize("text", ["", "{", "[1]", "NaN", '{"vocab_size": NaN}', "\x00", "[" * 100_000])
def test_a_config_that_is_no_json_object_is_refused(text: str, directory: Path) -> None:
    (directory / "config.json").write_text(text)
    with pytest.raises(WeightsError, match=r"config\.json (is not valid JSON|must hold a JSON object)"):
        load_model(directory)


def test_a_missing_file_is_named(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"neither model\.safetensors nor"):
        load_hf(directory)
    (directory / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"config\.json: No such file"):
        load_hf(directory)


def test_our_own_directories_are_checked_as_well(tmp_path: Path) -> None:
    save_proof_lm(random_model(LLAMA), tmp_path / "out")
    path = tmp_path / "out" / "model.safetensors"
    tensors = load_file(path)
    del tensors["blocks.1.feed_forward.gate.weight"]
    save_file(tensors, path)
    with pytest.raises(WeightsError, match=r"1 missing: blocks\.1\.feed_forward\.gate\.weight"):
        load_proof_lm(tmp_path / "out")


def test_loading_reads_one_tensor_at_a_time(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is built without storage: nothing but the tensors of the file is ever allocated."""
    devices = []
    initialise = ProofLM.__init__

    def spy(self: ProofLM, *args: object, **kwargs: object) -> None:
        initialise(self, *args, **kwargs)
        devices.append({parameter.device.type for parameter in self.parameters()})

    monkeypatch.setattr(ProofLM, "__init__", spy)
    assert not any(parameter.is_meta for parameter in load_hf(directory).parameters())
    assert devices == [{"meta"}]


def test_a_damaged_number_of_layers_builds_nothing(directory: Path) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 10**9}))
    with pytest.raises(WeightsError, match="21 tensors for n_layers = 1000000000"):
        load_hf(directory)
