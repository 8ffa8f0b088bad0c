"""What a command's TARGET may be, and how it becomes a model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proof_lm.config import DecoderConfig
from proof_lm.errors import TargetError
from proof_lm.presets import PRESETS

if TYPE_CHECKING:
    from proof_lm.model import ProofLM
    from proof_lm.text import Tokenizer

EMBEDDED = "chapter"
MAX_SEED = 2**63 - 1  # what PyTorch's generators take
TARGET_HELP = (
    f"A preset ({', '.join(PRESETS)}), 'smollm2' for the installed SmolLM2-135M weights, a Hugging Face or "
    "ProofLM directory, or a .gguf file."
)


@dataclass(frozen=True)
class Target:
    """A preset, which has no weights of its own, or a path, which has.

    Attributes:
        name: as the user gave it.
        config: of the preset; None for a path.
        path: of the weights; None for a preset.
    """

    name: str
    config: DecoderConfig | None
    path: Path | None

    def load(self, seed: int) -> ProofLM:
        """The model: a preset's initial weights from the seed, or the weights at the path."""
        if self.path is not None:
            from proof_lm.weights import load_model

            return load_model(self.path)
        import torch

        from proof_lm.model import ProofLM

        assert self.config is not None
        self.require_room(4)
        torch.manual_seed(seed)
        return ProofLM(self.config).eval()

    def require_room(self, bytes_a_parameter: int) -> None:
        """Whether the machine has memory for a preset's weights, as far as it says how much it has.

        Raises:
            TargetError: it has not.
        """
        from proof_lm.sheet import parameter_count

        assert self.config is not None
        needed = bytes_a_parameter * parameter_count(self.config)
        try:
            there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return
        if needed > there:
            raise TargetError(
                f"{self.name} needs {needed / 1e9:,.1f} GB for its weights, and this machine has "
                f"{there / 1e9:,.1f} GB; `proof-lm sheet {self.name}` tells what follows from its config"
            )

    def read_config(self) -> DecoderConfig:
        """Its config; of a path without the weights."""
        if self.config is not None:
            return self.config
        from proof_lm.weights import read_config

        assert self.path is not None
        return read_config(self.path)

    def load_tokenizer(self, vocab_size: int) -> Tokenizer:
        """The path's tokenizer; plain bytes for a preset, and for a directory without one."""
        from proof_lm.text import ByteTokenizer, load_tokenizer

        if self.path is None or (self.path.is_dir() and not (self.path / "tokenizer.json").exists()):
            return ByteTokenizer(vocab_size)
        return load_tokenizer(self.path)


def resolve(name: str | None) -> Target:
    """The target of that name; without a name, the embedded decoder.

    Raises:
        TargetError: it is none of the things that a target may be.
        WeightsError: it is ``smollm2`` and that package is not installed.
    """
    if name is None:
        return Target(f"embedded decoder ({EMBEDDED})", PRESETS[EMBEDDED], None)
    if name in PRESETS:
        return Target(name, PRESETS[name], None)
    if name == "smollm2":
        from proof_lm.weights import find_smollm2

        return Target(name, None, find_smollm2())
    path = Path(name)
    if not name or not path.exists():
        raise TargetError(
            f"no target {name!r}: there is no such file or directory, and it is not 'smollm2' nor a preset "
            f"({', '.join(PRESETS)})"
        )
    if path.suffix == ".py":
        raise TargetError(f"{name} is Python; name what in it makes the decoder, as {name}:NAME")
    return Target(name, None, path.resolve())
