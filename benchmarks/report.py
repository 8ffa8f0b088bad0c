"""What is printed and written: the environment, one table a task, JSON."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from harness import Result, Task


def environment() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "torch": torch.__version__,
        "transformers": metadata.version("transformers"),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cpu": _cpu_name(),
        "load": round(os.getloadavg()[0], 2),
    }


def table(task: Task, results: list[Result]) -> Table:
    """One row a contender; columns that would be empty are left out."""
    peer = next((result for result in results if result.name == task.peer), None)
    rows = [_row(task, result, peer) for result in results]
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    n_rounds = len(results[0].samples)
    drawn = Table(
        title=f"{task.name}: {task.about} ({n_rounds} rounds)", title_justify="left", title_style="bold"
    )
    for name in columns:
        drawn.add_column(name, justify="left" if name == "contender" else "right")
    for row in rows:
        drawn.add_row(*(row[name] for name in columns))
    return drawn


def as_json(task: Task, results: list[Result]) -> dict[str, Any]:
    """The task's results with every round's seconds."""
    peer = next((result for result in results if result.name == task.peer), None)
    return {
        "task": task.name,
        "about": task.about,
        "peer": task.peer,
        "tokens": task.tokens,
        "contenders": [
            {
                "name": result.name,
                "median_s": result.median,
                "spread": result.spread,
                "speed_against_peer": result.speed_against(peer) if peer else None,
                "same_outcome_as_peer": result.agrees_with(peer) if peer else None,
                "peak_mib": result.peak_mib,
                "seconds": result.seconds,
            }
            for result in results
        ],
    }


def _row(task: Task, result: Result, peer: Result | None) -> dict[str, str]:
    same = result.agrees_with(peer) if peer else None
    return {
        "contender": result.name,
        "median s": f"{result.median:.3f}",
        "spread": f"{result.spread:.0%}",
        "tokens/s": f"{task.tokens / result.median:,.1f}" if task.tokens else "",
        "times the peer's speed": f"{result.speed_against(peer):.2f}" if peer else "",
        "peak MiB": "" if result.peak_mib is None else f"{result.peak_mib:,.0f}",
        "peer's tokens": "" if same is None else ("yes" if same else "NO"),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
