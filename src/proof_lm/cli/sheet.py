"""``proof-lm sheet``: what a decoder is made of, from its config alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proof_lm.cli.output import out, require_writable, write_json
from proof_lm.cli.targets import TARGET_HELP, resolve


def sheet(
    target: Annotated[str, typer.Argument(help=TARGET_HELP)],
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the table to this file.")] = None,
) -> None:
    """The tensors of a decoder with their shapes, and the closed count of its parameters."""
    from rich.table import Table

    from proof_lm.sheet import parameter_count, tensors

    if json_file is not None:
        require_writable(json_file)
    source = resolve(target)
    config = source.config if source.config is not None else source.load(seed=0).config
    specs, count = tensors(config), parameter_count(config)
    table = Table(title=source.name, title_justify="left", box=None)
    table.add_column("tensor", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    table.add_column("elements", justify="right", no_wrap=True)
    for spec in specs:
        table.add_row(spec.name, " x ".join(str(size) for size in spec.shape), f"{spec.size:,}")
    console = out()
    console.print(table)
    head = "the head is the embedding" if config.tie_embeddings else "embedding and head are two matrices"
    console.print(f"\n{count:,} parameters in {len(specs)} tensors; {head}", highlight=False)
    if json_file is not None:
        write_json(
            json_file,
            {
                "format": "proof-lm/sheet",
                "version": 1,
                "target": source.name,
                "config": config.to_dict(),
                "parameter_count": count,
                "tensors": [{"name": s.name, "shape": list(s.shape), "elements": s.size} for s in specs],
            },
        )
