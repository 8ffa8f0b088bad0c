"""``proof-lm convert``: weights from one format to another."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from proof_lm.cli.output import out, progress
from proof_lm.cli.targets import MAX_SEED, TARGET_HELP, resolve


class Format(StrEnum):
    """What to write."""

    HF = "hf"
    PROOF_LM = "proof-lm"


def convert(
    src: Annotated[str, typer.Argument(help=TARGET_HELP)],
    dst: Annotated[Path, typer.Argument(help="The directory to write; it must not exist, or be empty.")],
    form: Annotated[
        Format, typer.Option("--format", help="A Hugging Face directory, or ProofLM's own.")
    ] = Format.HF,
    seed: Annotated[int, typer.Option("--seed", min=0, max=MAX_SEED, help="Of a preset's weights.")] = 0,
) -> None:
    """Write a model as a directory that transformers, or ProofLM, loads."""
    from proof_lm.weights import require_free, save_hf, save_proof_lm

    require_free(dst)  # before anything is loaded
    source = resolve(src)
    with progress().status(f"loading {source.name}") as status:
        model = source.load(seed)
        files = source.load_tokenizer(model.config.vocab_size).to_files()
        status.update(f"writing {dst}")
        save = save_hf if form is Format.HF else save_proof_lm
        save(model, dst, extra_files=files)
    out().print(
        f"{dst}: {model.parameter_count:,} parameters, {form.value} format", highlight=False, soft_wrap=True
    )
