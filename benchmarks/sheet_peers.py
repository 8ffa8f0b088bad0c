"""What other tools count for the decoders of ``proof-lm sheet``: ``python benchmarks/sheet_peers.py --help``.

Every measurement runs in a process of its own, as some tools patch torch, or leave buffers in a module.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from harness import progress
from proof_lm.functional import AttentionBackend
from proof_lm.model import ProofLM
from proof_lm.presets import PRESETS
from proof_lm.sheet import Sheet
from shapes import transformers_model

TOKENS = {"chapter": 16, "gpt2": 1024, "smollm2-135m": 1024, "llama-3.1-8b": 1024, "llama-3.1-405b": 1024}
META = {"llama-3.1-8b", "llama-3.1-405b"}
ATTENTION: dict[str, AttentionBackend] = {"eager": "explicit", "sdpa": "fused"}
"""The names of transformers, and ours."""

TITLES = {"parameters": "Parameters", "forward": "Forward pass", "step": "Training step"}
INSTALL = "pip install torchinfo calflops fvcore thop ptflops"


@dataclass(frozen=True)
class Count:
    """What a tool says of one decoder: parameters, and operations of a forward pass and of a training step.

    They are FLOPs, 2 for each multiplication with its addition, or MACs, 1 for both; None is not counted.
    """

    unit: str
    parameters: int | None = None
    forward: int | None = None
    step: int | None = None
    error: str | None = None


class Logits(nn.Module):
    """A decoder whose only output is a tensor, as tracers want it."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, token_ids: Tensor) -> Tensor:
        logits: Tensor = self.decoder(token_ids)[0]
        return logits


def flop_counter_mode(model: nn.Module, ids: Tensor) -> list[Count]:
    with FlopCounterMode(display=False) as forward:
        model(ids)
    with torch.enable_grad(), FlopCounterMode(display=False) as step:
        cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    return [Count("FLOPs", None, forward.get_total_flops(), step.get_total_flops())]


def torchinfo(model: nn.Module, ids: Tensor) -> list[Count]:
    from torchinfo import summary

    found = summary(model, input_data=ids, device=ids.device, verbose=0)
    return [Count("MACs", found.total_params, found.total_mult_adds)]


def calflops(model: nn.Module, ids: Tensor) -> list[Count]:
    from calflops import calculate_flops

    count = partial(calculate_flops, model, args=[ids], print_results=False, output_as_string=False)
    flops, macs, parameters = count()
    step_flops, step_macs, _ = count(include_backPropagation=True)
    return [
        Count("FLOPs", parameters, int(flops), int(step_flops)),
        Count("MACs", parameters, int(macs), int(step_macs)),
    ]


def thop(model: nn.Module, ids: Tensor) -> list[Count]:
    from thop import profile

    macs, parameters = profile(model, inputs=(ids,), verbose=False)
    return [Count("MACs", int(parameters), int(macs))]


def ptflops(model: nn.Module, ids: Tensor, backend: str) -> list[Count]:
    from ptflops import get_model_complexity_info

    macs, parameters = get_model_complexity_info(
        model,
        input_res=tuple(ids.shape[1:]),
        input_constructor=lambda _: ids,
        as_strings=False,
        print_per_layer_stat=False,
        backend=backend,
    )
    return [Count("MACs", int(parameters), int(macs))]


def fvcore(model: nn.Module, ids: Tensor) -> list[Count]:
    from fvcore.nn import FlopCountAnalysis, parameter_count

    analysis = FlopCountAnalysis(model, ids)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    return [Count("MACs", parameter_count(model)[""], int(analysis.total()))]


Results = dict[tuple[str, str, str], list[Count]]  # by tool, attention and model


@dataclass(frozen=True)
class Tool:
    """The distribution that a tool comes in, what it counts, and how it is asked."""

    distribution: str
    units: tuple[str, ...]
    count: Callable[[nn.Module, Tensor], list[Count]]

    @property
    def version(self) -> str | None:
        """None where it is not installed."""
        return next((found.version for found in metadata.distributions(name=self.distribution)), None)


TOOLS = {
    "FlopCounterMode": Tool("torch", ("FLOPs",), flop_counter_mode),
    "torchinfo": Tool("torchinfo", ("MACs",), torchinfo),
    "calflops": Tool("calflops", ("FLOPs", "MACs"), calflops),
    "fvcore": Tool("fvcore", ("MACs",), fvcore),
    "thop": Tool("thop", ("MACs",), thop),
    "ptflops, pytorch": Tool("ptflops", ("MACs",), partial(ptflops, backend="pytorch")),
    "ptflops, aten": Tool("ptflops", ("MACs",), partial(ptflops, backend="aten")),
}


def main(arguments: list[str] | None = None) -> int:
    """Measures what is installed; 0 unless a name is unknown."""
    parser = argparse.ArgumentParser(prog="benchmarks/sheet_peers.py", description=__doc__)
    parser.add_argument("--model", action="append", choices=list(TOKENS), help="this one; may be given again")
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="this one; may be given again")
    parser.add_argument("--alone", nargs=3, metavar=("TOOL", "ATTENTION", "MODEL"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.alone:
        return _alone(*options.alone)
    chosen = options.tool or list(TOOLS)
    tools = [name for name in chosen if TOOLS[name].version]
    models = options.model or list(TOKENS)
    results: Results = {}
    for model, attention, tool in itertools.product(models, ATTENTION, tools):
        progress(f"{model}, {attention}: {tool}")
        results[tool, attention, model] = _measure(tool, attention, model)
    _report(results, tools, models)
    used = dict.fromkeys(["torch", "transformers", *(TOOLS[name].distribution for name in tools)])
    print(f"With {', '.join(f'{name} {metadata.version(name)}' for name in used)}.")
    if absent := sorted({TOOLS[name].distribution for name in chosen if name not in tools}):
        print(f"\nNot installed: {', '.join(absent)}. To install them: `{INSTALL}`")
    return 0


def _measure(tool: str, attention: str, model: str) -> list[Count]:
    command = [sys.executable, "-W", "ignore", __file__, "--alone", tool, attention, model]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        return [Count(unit, error=f"exit status {process.returncode}") for unit in TOOLS[tool].units]
    return [Count(**fields) for fields in json.loads(process.stdout.splitlines()[-1])]


def _alone(tool: str, attention: str, model: str) -> int:
    """One measurement; its counts are the last line of standard output, as some tools print too."""
    device = torch.device("meta" if model in META else "cpu")
    ids = torch.zeros(1, TOKENS[model], dtype=torch.int64, device=device)
    with device:
        decoder = _build(model, attention)
    try:
        with torch.no_grad():
            counts = TOOLS[tool].count(Logits(decoder).eval(), ids)
    except Exception as error:  # noqa: BLE001 - that it fails, and how, is the result
        progress(f"{tool} failed: {type(error).__name__}: {str(error)[:300]}")
        counts = [Count(unit, error=type(error).__name__) for unit in TOOLS[tool].units]
    print(json.dumps([asdict(count) for count in counts]))
    return 0


def _build(model: str, attention: str) -> nn.Module:
    """The chapter's decoder is ProofLM's; the others are transformers', with GPT-2's own GELU."""
    if model == "chapter":
        return ProofLM(PRESETS[model], attention_backend=ATTENTION[attention])
    decoder = transformers_model(PRESETS[model], fused_gelu=False)
    decoder.set_attn_implementation(attention)
    assert isinstance(decoder, nn.Module)
    return decoder


def _report(results: Results, tools: list[str], models: list[str]) -> None:
    sheets = [Sheet(model, PRESETS[model], 1, TOKENS[model]) for model in models]
    expected = {
        "parameters": [sheet.parameter_count for sheet in sheets],
        "forward": [sheet.forward.products for sheet in sheets],
        "step": [sheet.conventions["dense"] for sheet in sheets],
    }
    for quantity, own in expected.items():
        lead = ["tool"] if quantity == "parameters" else ["tool", "attention", "unit"]
        print(f"### {TITLES[quantity]}\n\n| {' | '.join(lead + models)} |")
        print(f"|{'---|' * len(lead)}{'---:|' * len(models)}")
        print(f"| {' | '.join([*['sheet', '', 'FLOPs'][: len(lead)], *(f'{value:,}' for value in own)])} |")
        for tool in tools:
            found: dict[tuple[str, ...], list[str]] = {}
            kinds = ["eager"] if quantity == "parameters" else list(ATTENTION)
            for kind, (index, unit) in itertools.product(kinds, enumerate(TOOLS[tool].units)):
                counts = (results[tool, kind, model][index] for model in models)
                cells = [_cell(*pair, quantity) for pair in zip(counts, own, strict=True)]
                found.setdefault(("" if quantity == "parameters" else unit, *cells), []).append(kind)
            for (unit, *cells), alike in found.items():
                attention = "both" if len(alike) > 1 else alike[0]
                if any(cells):
                    print(f"| {' | '.join([*[tool, attention, unit][: len(lead)], *cells])} |")
        print()


def _cell(count: Count, expected: int, quantity: str) -> str:
    """The tool's number, and how much more that is than the sheet's, in the tool's unit; "=" for nothing."""
    value = getattr(count, quantity)
    if value is None:
        return f"fails: {count.error}" if count.error and quantity == "forward" else ""
    if count.unit == "MACs" and quantity != "parameters":
        expected //= 2
    return f"{value:,} ({f'{value - expected:+,}' if value != expected else '='})"


if __name__ == "__main__":
    sys.exit(main())
