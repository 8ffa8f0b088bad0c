"""Memory a device, time and cost of a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from proof_lm.config import DecoderConfig
from proof_lm.sheet.activations import Backend
from proof_lm.sheet.dimensions import dimensions
from proof_lm.sheet.flops import counted, recomputation_flops, step_flops
from proof_lm.sheet.memory import Recipe, activation_bytes, recipes
from proof_lm.sheet.tensors import TensorSpec, tensors

Parallel = Literal["ddp", "fsdp"]


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes that one of the devices holds.

    Attributes:
        parameters: its own, in the dtype that computes.
        gradients: its own.
        optimizer: AdamW's two averages, and the float32 master weights where there are any.
        gathered: under FSDP, the parameters and gradients of the largest unit (a layer; or embedding, final norm and
            head together), whole, while it is computed.
        activations: kept for the backward pass of this device's rows.
    """

    parameters: int
    gradients: int
    optimizer: int
    gathered: int
    activations: int

    @property
    def total(self) -> int:
        """All of it; what kernels need for themselves, and fragments of memory, come on top."""
        return self.parameters + self.gradients + self.optimizer + self.gathered + self.activations


def device_memory(
    config: DecoderConfig,
    batch: int,
    n_tokens: int,
    recipe: Recipe,
    dtype: str,
    *,
    devices: int = 1,
    parallel: Parallel = "ddp",
    backend: Backend = "fused",
    recomputed: bool = False,
) -> DeviceMemory:
    """Of a training step with ``batch`` rows a device.

    DDP holds everything on each device, gradients as views of its buckets. FSDP (ZeRO stage 3, ``fully_shard``)
    splits each tensor along its first axis, rounded up to whole rows.
    """
    specs = tensors(config)
    is_split = parallel == "fsdp" and devices > 1
    held = sum(_shard(spec, devices) if is_split else spec.size for spec in specs)
    gathered = _largest_unit(specs) * (recipe.parameter + recipe.gradient) if is_split else 0
    values = dimensions(config, batch, n_tokens)
    return DeviceMemory(
        parameters=held * recipe.parameter,
        gradients=held * recipe.gradient,
        optimizer=held * (recipe.master + recipe.moments),
        gathered=gathered,
        activations=activation_bytes(config, values, dtype, backend, recomputed=recomputed),
    )


def _shard(spec: TensorSpec, devices: int) -> int:
    """Elements of the largest of the pieces that a tensor is split into."""
    rows, *others = spec.shape
    return math.ceil(rows / devices) * math.prod(others)


def _largest_unit(specs: list[TensorSpec]) -> int:
    layer = sum(spec.size for spec in specs if spec.name.startswith("blocks.0."))
    outside = sum(spec.size for spec in specs if not spec.name.startswith("blocks."))
    return max(layer, outside)


@dataclass(frozen=True)
class Machine:
    """What the steps run on.

    Attributes:
        devices: how many.
        peak: FLOP/s of one, as its data sheet says for the dtype.
        utilization: the share of the peak that is reached, more than 0 and at most 1.
        price: of an hour of one device, in any currency; None where it does not matter.
    """

    devices: int
    peak: float
    utilization: float
    price: float | None = None


@dataclass(frozen=True)
class Run:
    """A training run.

    Attributes:
        flops: model FLOPs of a step over all devices, by the sheet's convention.
        computed: with what is recomputed.
        tokens_per_step: over all devices.
        seconds_per_step: computed / (devices x peak x utilization).
        tokens: of the whole run; None where neither tokens nor a budget is given.
        seconds: of the whole run.
        cost: of the whole run; None without a price.
    """

    flops: int
    computed: int
    tokens_per_step: int
    seconds_per_step: float
    tokens: int | None
    seconds: float | None
    cost: float | None


def plan_run(
    config: DecoderConfig,
    batch: int,
    n_tokens: int,
    machine: Machine,
    *,
    convention: str = "dense",
    recomputed: bool = False,
    tokens: int | None = None,
    budget: float | None = None,
) -> Run:
    """Time, and cost or tokens, of a run with ``batch`` rows a device.

    Args:
        config: of the decoder.
        batch: rows a device and step.
        n_tokens: of a row.
        machine: what it runs on.
        convention: how a step is counted; utilization must be measured by the same.
        recomputed: whether each layer's forward pass runs twice.
        tokens: of the run.
        budget: in the currency of the price, instead of tokens: as many as it pays for.
    """
    flops = step_flops(config, batch, n_tokens, convention) * machine.devices
    again = 0
    if recomputed:
        values = counted(config, batch, n_tokens, convention)
        again = recomputation_flops(config, values).products * machine.devices
    per_step = batch * n_tokens * machine.devices
    seconds_per_step = (flops + again) / (machine.devices * machine.peak * machine.utilization)
    if budget is not None:
        assert machine.price is not None
        seconds = budget / (machine.price * machine.devices) * 3600
        tokens = int(seconds / seconds_per_step * per_step)
    if tokens is None:
        return Run(flops, flops + again, per_step, seconds_per_step, None, None, None)
    seconds = tokens / per_step * seconds_per_step
    cost = None if machine.price is None else seconds / 3600 * machine.devices * machine.price
    return Run(flops, flops + again, per_step, seconds_per_step, tokens, seconds, cost)


@dataclass(frozen=True)
class Plan:
    """What a training run needs.

    Attributes:
        devices: how many.
        parallel: how they share the work.
        recomputed: whether each layer's forward pass runs twice.
        convention: how steps are counted.
        memory: of each device, by recipe.
        machine: what it runs on; None where its speed is not known.
        bandwidth: bytes/s of a device's memory; None where it is not known.
        run: time and cost; None without a machine.
    """

    devices: int
    parallel: Parallel
    recomputed: bool
    convention: str
    memory: dict[str, DeviceMemory]
    machine: Machine | None
    bandwidth: float | None
    run: Run | None


def make_plan(
    config: DecoderConfig,
    batch: int,
    n_tokens: int,
    dtype: str,
    *,
    devices: int = 1,
    parallel: Parallel = "ddp",
    recomputed: bool = False,
    convention: str = "dense",
    machine: Machine | None = None,
    bandwidth: float | None = None,
    tokens: int | None = None,
    budget: float | None = None,
) -> Plan:
    """Memory of each device for every recipe of the dtype; with a machine, time and cost."""
    memory = {
        recipe.name: device_memory(
            config, batch, n_tokens, recipe, dtype, devices=devices, parallel=parallel, recomputed=recomputed
        )
        for recipe in recipes(dtype)
    }
    run = None
    if machine is not None:
        run = plan_run(
            config,
            batch,
            n_tokens,
            machine,
            convention=convention,
            recomputed=recomputed,
            tokens=tokens,
            budget=budget,
        )
    return Plan(devices, parallel, recomputed, convention, memory, machine, bandwidth, run)
