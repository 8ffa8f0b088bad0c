"""Times ProofLM against transformers: ``python benchmarks/run.py --help``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TQDM_DISABLE", "1")

from rich.console import Console

import inference
import processes
import training
from harness import Task, measure, progress
from report import as_json, environment, table


def main(arguments: list[str] | None = None) -> int:
    """Runs the chosen tasks; 0 when all ran, 1 when one failed, 2 for an unknown name."""
    options = _parser().parse_args(arguments)
    tasks = {task.name: task for task in _all_tasks(options.tiny)}
    chosen = options.only or list(tasks)
    if options.list:
        print("\n".join(tasks))
        return 0
    if options.alone:
        return _alone(tasks[options.alone[0]], options.alone[1])
    if unknown := sorted(set(chosen) - set(tasks)):
        progress(f"no task named {', '.join(unknown)}; there are {', '.join(tasks)}")
        return 2
    return _run([tasks[name] for name in chosen], options.rounds, options.json)


def _run(tasks: list[Task], rounds: int | None, json_file: Path | None) -> int:
    console = Console(width=None if sys.stdout.isatty() else 110)
    facts = environment()
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    done, failed = [], []
    for task in tasks:
        try:
            results = measure(task, rounds)
        except Exception as error:  # noqa: BLE001 - the other tasks still have something to say
            progress(f"{task.name} failed: {type(error).__name__}: {error}")
            failed.append(task.name)
            continue
        console.print(table(task, results))
        done.append(as_json(task, results))
    if json_file is not None:
        document = {"environment": facts, "tasks": done, "failed": failed}
        json_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0


def _alone(task: Task, name: str) -> int:
    """Two runs of one contender with nothing else in the process, so that its peak memory is its own."""
    run = task.contender(name).make()
    for _ in range(2):
        run()
    return 0


def _all_tasks(tiny: bool) -> list[Task]:
    return [*training.tasks(tiny), *inference.tasks(tiny), *processes.tasks(tiny)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="this task; may be given again")
    parser.add_argument(
        "--rounds", type=_positive, metavar="N", help="timed rounds (each task has a default)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round's figures there too")
    parser.add_argument("--list", action="store_true", help="print the tasks' names")
    parser.add_argument("--tiny", action="store_true", help="shrunken shapes, to try the script: no figures")
    parser.add_argument("--alone", nargs=2, metavar=("NAME", "CONTENDER"), help=argparse.SUPPRESS)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
