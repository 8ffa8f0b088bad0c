"""Named tensors on disk: what a safetensors directory holds, read one tensor at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from proof_lm.errors import WeightsError
from proof_lm.weights.documents import first_few, read_json_object

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@runtime_checkable  # the tests check annotations as they run
class TensorStore(Protocol):
    """Named tensors, their shapes known before any is read.

    Attributes:
        where: the file or directory, for messages.
    """

    where: Path

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, by name."""
        ...

    def read(self, name: str) -> Tensor:
        """The tensor of that name, in the dtype it is stored in."""
        ...


class SafetensorsStore:
    """The tensors of ``model.safetensors``, or of the shards that its index lists, in a directory.

    The headers are checked when the store is made; ``read`` maps the file into memory and takes one tensor
    out of it, so nothing is held twice.

    Raises:
        WeightsError: there is no such file, or one is cut off or damaged, a shard is missing, or a tensor
            is not where the index says. The message names the file and the tensor.
    """

    def __init__(self, directory: Path) -> None:
        self.where = directory
        self._dtypes: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, Path] = {}
        if (directory / _SINGLE).exists():
            self._add_file(directory / _SINGLE)
        elif (directory / _INDEX).exists():
            self._add_shards(directory / _INDEX)
        else:
            raise WeightsError(_nothing_to_read(directory))

    def read(self, name: str) -> Tensor:
        """The tensor of that name, in the dtype it is stored in.

        Raises:
            WeightsError: its dtype is not float64, float32, float16 or bfloat16, or its file is damaged.
        """
        stored = self._dtypes[name]
        if stored not in _DTYPES:
            raise WeightsError(
                f"{self._files[name]}: {name} is stored as {stored}; the dtypes read here are "
                f"{', '.join(_DTYPES)} (quantised checkpoints are not read)"
            )
        try:
            with safe_open(self._files[name], framework="pt") as file:
                # a copy: the file's own memory is aligned to nothing, and kernels round otherwise there
                tensor: Tensor = file.get_tensor(name).clone()
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{self._files[name]}: cannot read {name}: {error}") from error
        return tensor

    def _add_file(self, path: Path) -> list[str]:
        """Take note of every tensor in ``path``; returns their names."""
        try:
            with safe_open(path, framework="pt") as file:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
                shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
                dtypes = {name: part.get_dtype() for name, part in slices.items()}
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"cannot read {path}, is it cut off or damaged? ({error})") from error
        for name in shapes:
            if name in self.shapes:
                raise WeightsError(f"{name} is both in {self._files[name]} and in {path}")
        self.shapes |= shapes
        self._dtypes |= dtypes
        self._files |= dict.fromkeys(shapes, path)
        return list(shapes)

    def _add_shards(self, index: Path) -> None:
        weight_map = read_json_object(index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise WeightsError(f"{index} has no weight_map from tensor names to file names")
        for file_name in sorted(set(weight_map.values())):
            path = index.parent / file_name
            if Path(file_name).name != file_name:
                raise WeightsError(f"{index} names {file_name!r}, which is not a file beside it")
            if not path.exists():
                raise WeightsError(f"{index} names {file_name}, which is missing")
            present = self._add_file(path)
            listed = [name for name, shard in weight_map.items() if shard == file_name]
            if sorted(listed) != sorted(present):
                odd = sorted(set(listed) ^ set(present))
                raise WeightsError(f"{index} and {file_name} disagree over {first_few(odd)}")


def _nothing_to_read(directory: Path) -> str:
    pickles = sorted(path.name for pattern in _PICKLES for path in directory.glob(pattern))
    message = f"{directory} has neither {_SINGLE} nor {_INDEX}"
    if pickles:
        message += f"; {first_few(pickles)} may be pickled, which can run code, so only safetensors are read"
    return message
