"""``proof-lm zoo``: every causal language model of the installed transformers."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from proof_lm.cli.isolation import complete_events, death
from proof_lm.cli.judging import Request
from proof_lm.cli.output import INTERRUPTED, out, progress, write_json, write_text
from proof_lm.cli.report_files import ReportFiles
from proof_lm.cli.subjects import HF_TINY, Source

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from proof_lm.verify import Level
    from proof_lm.verify.zoo import ZooEntry

PAUSE = 0.05  # seconds between two looks at the processes


def zoo(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Judge this class only; repeat it, or use commas.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Classes judged at a time.")] = 1,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1.0, help="Seconds after which a class's process is ended.")
    ] = 120.0,
    level: Annotated[
        str, typer.Option("--level", help="quick, standard or thorough: how much is looked at.")
    ] = "quick",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the table to this file; - is standard output.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a page with the table and all evidence.")
    ] = None,
    violations: Annotated[
        Path | None,
        typer.Option(
            "--save-violations", help="Write each violation to this folder, for `proof-lm replay FILE`."
        ),
    ] = None,
) -> None:
    """Judge every causal language model of transformers, made small, on each of its attention backends.

    Exit status: 0 all that is violated is explained, 1 something is not, or is explained and no longer found, 2 the
    command is wrong, 3 neither, but something is inconclusive or no class could be judged, 130 interrupted.
    """
    from proof_lm.testing import select_contracts
    from proof_lm.verify.zoo import exit_status, render_zoo, zoo_to_dict, zoo_to_html

    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    chosen, known_level = _classes(only), cast("Level", level)
    select_contracts((), known_level)  # refuses what is no level
    files = ReportFiles(json=json_file, html=html_file, violations=violations)
    files.require_writable()
    begun = time.monotonic()
    entries: list[ZooEntry] = []
    interrupted = False
    console = progress()
    with console.status(f"{len(chosen)} classes") as status:
        try:
            for entry in judge_classes(
                chosen, known_level, jobs=jobs, timeout=timeout, violations=violations is not None
            ):
                entries.append(entry)
                line = _progress(entries, len(chosen), time.monotonic() - begun)
                status.update(line)
                if not console.is_terminal:
                    console.print(line, markup=False, highlight=False, soft_wrap=True)
        except KeyboardInterrupt:
            interrupted = True
            console.print("interrupted: what was decided until then follows", highlight=False)
    entries.sort(key=lambda entry: chosen.index(entry.name))
    seconds = time.monotonic() - begun
    done = {entry.name for entry in entries}
    left = [name for name in chosen if name not in done]
    if json_file is not None:  # first: who reads what follows may stop early
        write_json(json_file, zoo_to_dict(entries, level=level, seconds=seconds, left=left))
    if html_file is not None:
        command = shlex.join(["proof-lm", *sys.argv[1:]])
        page = zoo_to_html(entries, command=command, level=level, seconds=seconds, left=left)
        write_text(html_file, page)
    for entry in entries:
        if entry.verification is not None:
            ReportFiles(violations=violations).write(entry.verification, entry.replays)
    render_zoo(entries, out(*files.named), seconds, len(left))
    raise typer.Exit(INTERRUPTED if interrupted else exit_status(entries))


def judge_classes(
    names: Sequence[str], level: Level, *, jobs: int = 1, timeout: float = 120.0, violations: bool = False
) -> Iterator[ZooEntry]:
    """Judges each class in a process of its own, ``jobs`` at a time; gives entries as they are done, with documents of
    their violations if wanted.

    A process that takes longer than ``timeout`` seconds is killed with all that it started; what it decided by then
    counts. Those under way are killed when the caller stops asking.
    """
    import transformers.modeling_utils  # noqa: F401 - once, for all that are forked

    import proof_lm.cli.child  # noqa: F401
    from proof_lm.verify import at_level

    contracts = tuple(contract.name for contract in at_level(level))
    waiting = list(names)
    running: list[_Process] = []
    with tempfile.TemporaryDirectory(prefix="proof-lm-zoo-") as scratch:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    name = waiting.pop(0)
                    request = Request(Source(f"{HF_TINY}{name}", 0), contracts, level, violations=violations)
                    running.append(_Process.start(name, Path(scratch), request))
                time.sleep(PAUSE)
                for process in tuple(running):
                    is_late = time.monotonic() - process.begun > timeout
                    if process.has_ended or is_late:
                        process.kill()  # what it has started may live on
                        running.remove(process)
                        yield process.entry(f"took longer than {timeout:g} s (--timeout)" if is_late else "")
        finally:
            for process in running:
                process.kill()


@dataclass(frozen=True)
class _Process:
    """The judging of one class, in a process group of its own that appends its events to a file."""

    name: str
    request: Request
    events: Path
    errors: Path
    child: BaseProcess
    begun: float

    @classmethod
    def start(cls, name: str, scratch: Path, request: Request) -> _Process:
        """Forks where that is safe: what all classes need is imported once."""
        from proof_lm.verify.parallel import can_fork

        events, errors = scratch / f"{name}.events", scratch / f"{name}.errors"
        events.touch()
        errors.touch()
        context: Any = multiprocessing.get_context("fork" if can_fork() else "spawn")
        child = context.Process(target=_judge, args=(events, errors, request))
        child.start()
        return cls(name, request, events, errors, child, time.monotonic())

    @property
    def has_ended(self) -> bool:
        return self.child.exitcode is not None

    def kill(self) -> None:
        """Ends the process and all that it has started."""
        from proof_lm.verify.parallel import kill_group

        assert self.child.pid is not None
        kill_group(self.child.pid)
        self.child.kill()
        self.child.join()

    def entry(self, cut: str) -> ZooEntry:
        """What it told; ``cut`` says why it was ended, if it was."""
        from proof_lm.verify import Verdict, Verification
        from proof_lm.verify.report import result_from_dict
        from proof_lm.verify.zoo import ZooEntry

        request = self.request
        target = str(request.source.target)
        verification = Verification(target, request.source.seed, request.contracts, level=request.level)
        message, replays = cut, {}
        with self.events.open(encoding="utf-8") as lines:
            for event in complete_events(lines):
                if event["event"] == "decided":
                    verification.results.append(result_from_dict(event["result"]))
                elif event["event"] == "violations":
                    replays = {f"{self.name}-{file}": document for file, document in event["files"].items()}
                elif event["event"] == "failed":
                    message = event["message"].removeprefix(f"{target}: ")
        seconds = time.monotonic() - self.begun
        is_lost = request.violations and verification.count(Verdict.VIOLATED) and not replays
        if not message and (verification.undecided or is_lost):
            message = self._death()
        judged = verification if verification.results else None
        return ZooEntry(self.name, seconds, judged, message, replays)

    def _death(self) -> str:
        """How it ended without a word."""
        code = self.child.exitcode
        assert code is not None
        if code < 0:
            return f"its process {death(code)}"
        lines = self.errors.read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "and said nothing")
        return f"its process {death(code)}: {last}"


def _judge(events: Path, errors: Path, request: Request) -> None:
    """What a process does: no input, no output but its events, one thread, since the models are tiny."""
    import torch

    from proof_lm.cli import child

    if hasattr(os, "setsid"):
        os.setsid()
    nowhere, told = os.open(os.devnull, os.O_RDONLY), os.open(errors, os.O_WRONLY)
    for source, stream in ((nowhere, 0), (told, 1), (told, 2)):
        os.dup2(source, stream)
    torch.set_num_threads(1)
    child.main(str(events), json.dumps(request.to_dict()))


def _progress(entries: Sequence[ZooEntry], n_classes: int, seconds: float) -> str:
    """How far it is, what came last, and how long the rest will take at this pace."""
    last = entries[-1]
    verdicts = " ".join(f"{backend} {last.verdict(backend).value}," for backend in last.backends)
    what = verdicts.rstrip(",") or f"not runnable: {last.reason}"
    left = seconds / len(entries) * (n_classes - len(entries))
    return f"{len(entries)}/{n_classes} {last.name}: {what}; {seconds:.0f} s, about {left:.0f} s left"


def _classes(only: list[str] | None) -> list[str]:
    from proof_lm.verify.zoo import causal_classes, require_class

    known = list(causal_classes())
    if not only:
        return known
    wanted = [name.strip() for entry in only for name in entry.split(",")]
    for name in wanted:
        require_class(name)
    return [name for name in known if name in wanted]
