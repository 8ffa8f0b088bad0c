"""What ``verify`` can judge: beside the targets of every command, any callable that makes a PyTorch decoder."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from proof_lm.cli.targets import TARGET_HELP, resolve
from proof_lm.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Console

    from proof_lm.verify import Subject

HF = "hf:"
HF_TINY = "hf-tiny:"
SUBJECT_HELP = (
    f"{TARGET_HELP} Or any PyTorch decoder: path/to/file.py:callable, package.module:callable (a class, a function "
    "or a model), hf:DIR, a Hugging Face directory run through transformers, or hf-tiny:CLASS, a causal language model "
    "of transformers made small."
)


@dataclass(frozen=True)
class Source:
    """What the user named, and what belongs to it.

    Attributes:
        target: as the user gave it; None for the embedded decoder.
        seed: of the random weights that are drawn on the way.
        arguments: name=value pairs for the callable.
        map_file: says where a foreign decoder's weights lie.
    """

    target: str | None
    seed: int
    arguments: tuple[str, ...] = ()
    map_file: Path | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether code that is not ours makes the subject."""
        target = self.target
        return target is not None and (target.startswith(HF) or (":" in target and not Path(target).exists()))

    def load(self) -> Subject:
        """The subject. A preset gets weights on which every fault shows; everything else has weights of its own.

        Raises:
            TargetError: there is no such thing, or it does not make a decoder.
            MapError: the map does not fit.
        """
        target = self.target
        if target is not None and target.startswith(HF):
            return self._foreign(partial(_through_transformers, Path(target.removeprefix(HF))))
        if target is not None and target.startswith(HF_TINY):
            return self._tiny(target.removeprefix(HF_TINY))
        if target is not None and self.is_foreign:
            return self._foreign(_callable(target, self.arguments))
        for given, option in ((self.arguments, "--arg"), (self.map_file, "--map")):
            if given:
                raise TargetError(f"{option} goes with a callable or hf:DIR, and {target!r} is neither")
        from proof_lm.verify import ProofSubject, randomized

        known = resolve(target)
        if known.config is None:
            return ProofSubject(known.name, known.load(self.seed))
        known.require_room(4 + 8)  # beside the model stands a copy in float64
        return ProofSubject(f"{known.name}, random weights", randomized(known.config, self.seed))

    def _tiny(self, name: str) -> Subject:
        from proof_lm.verify.zoo import initial, tiny

        return self._foreign(partial(tiny, name, self.seed), partial(initial, name))

    def _foreign(self, make: Callable[[], Any], make_anew: Callable[[], Any] | None = None) -> Subject:
        import torch
        from torch import nn

        from proof_lm.model import ProofLM
        from proof_lm.verify import Adapter, ForeignSubject, ProofSubject
        from proof_lm.verify.maps import read_map

        assert self.target is not None
        torch.manual_seed(self.seed)
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for the result
            made = make()
        if isinstance(made, ProofLM) and self.map_file is None:
            return ProofSubject(self.target, made)
        if not isinstance(made, nn.Module | Adapter):
            raise TargetError(
                f"{self.target} made a {type(made).__name__}; it must be or return a torch.nn.Module, or a "
                "proof_lm.verify.Adapter around one"
            )
        module = made.module if isinstance(made, Adapter) else made
        if any(parameter.is_meta for parameter in module.parameters()):
            raise TargetError(
                f"{self.target} is on the meta device, where parameters have no values; move it with "
                'module.to_empty(device="cpu") and give it weights'
            )
        weight_map = None if self.map_file is None else read_map(self.map_file, module)
        build = partial(_module_of, make_anew or make)
        return ForeignSubject(self.target, made, weight_map=weight_map, build=build)


def show_subject(loaded: Mapping[str, Any], console: Console) -> None:
    """Prints what was found of the subject, and what was not and why, from the event that tells it."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(loaded["target"]), title_justify="left", box=None)
    for heading in ("what", "found", "how"):
        table.add_column(heading, overflow="fold")
    for finding in loaded["findings"]:
        table.add_row(*(escape(text) for text in finding))
    for capability, reason in loaded["absent"].items():
        table.add_row(capability, "[yellow]none[/]", escape(reason))
    console.print(table)


def _module_of(make: Callable[[], Any]) -> Any:
    from proof_lm.verify import Adapter

    made = make()
    return made.module if isinstance(made, Adapter) else made


def _through_transformers(folder: Path) -> Any:
    if not folder.is_dir():
        raise TargetError(f"{HF}{folder}: there is no such directory")
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise TargetError(f"{HF}DIR needs transformers: pip install 'proof-lm[hf]'") from error
    try:
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    except (OSError, ValueError, KeyError) as error:
        raise TargetError(f"transformers cannot load {folder}: {error}") from error


def _callable(target: str, arguments: Sequence[str]) -> Callable[[], Any]:
    """What makes the decoder: a call of what the target names; or the model, if it names one."""
    from torch import nn

    place, _, name = target.rpartition(":")
    found: Any = _module(place)
    for part in name.split("."):
        if not part or not hasattr(found, part):
            raise TargetError(f"{place} has no {name!r}; {_offers(found)}")
        found = getattr(found, part)
    given = dict(_argument(text) for text in arguments)
    if isinstance(found, nn.Module):
        if given:
            raise TargetError(f"{target} is a model already: it takes no --arg")
        return lambda: found
    if not callable(found):
        raise TargetError(f"{target} is a {type(found).__name__}, and neither callable nor a model")
    _require_arguments(target, found, given)
    return partial(_call, target, found, given)


def _offers(found: Any) -> str:
    """Which callables a module defines itself."""
    own = getattr(found, "__name__", None)
    known = [
        key
        for key, value in vars(found).items()
        if callable(value) and not key.startswith("_") and getattr(value, "__module__", None) == own
    ]
    return f"it has {', '.join(known)}" if known else "it defines nothing callable"


def _call(target: str, make: Callable[..., Any], given: dict[str, Any]) -> Any:
    try:
        return make(**given)
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(f"calling {target} raised {type(error).__name__}: {error}") from error


def _require_arguments(target: str, make: Callable[..., Any], given: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(**given)
    except TypeError as error:
        needed = [
            name
            for name, parameter in signature.parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            and name not in given
        ]
        hint = f"; give {' '.join(f'--arg {name}=VALUE' for name in needed)}" if needed else ""
        raise TargetError(f"{target}{signature}: {error}{hint}") from error


def _argument(text: str) -> tuple[str, Any]:
    """name=value; the value as Python writes it, else as a string."""
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise TargetError(f"--arg must be name=value, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _module(place: str) -> ModuleType:
    """The Python file at that path, or the module of that name as seen from the current directory."""
    is_file = place.endswith(".py")
    path = Path(place).resolve()
    if is_file and not path.is_file():
        raise TargetError(f"there is no file {place}")
    sys.path.insert(0, str(path.parent if is_file else Path.cwd()))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            if not is_file:
                return importlib.import_module(place)
            name = f"proof_lm_target_{path.stem}"  # no name of a module that others import
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module  # dataclasses and pickles look their module up
            spec.loader.exec_module(module)
            return module
    except (Exception, SystemExit) as error:
        raise TargetError(f"importing {place} raised {type(error).__name__}: {error}") from error
