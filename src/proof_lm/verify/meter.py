"""What a decoder computes, counted while it runs: each operation with its module, its shape and its arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from proof_lm.dims import Tensor
from proof_lm.model import ProofLM

# Operations an element of the output, or, where the axis is summed over, of the input. Every other operation on
# floating-point numbers is one an element of its output, but for those that only move or choose numbers.
_OF_OUTPUT = {"addcmul": 2, "addcmul_": 2}
_OF_INPUT = {"sum": 1, "mean": 1, "amax": 1, "linalg_vector_norm": 2, "logsumexp": 4}
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}
_LAYOUT = (
    "view _unsafe_view reshape t transpose permute expand unsqueeze squeeze alias detach as_strided clone"
)
_CHOICE = (
    "select slice split unbind index index_select gather scatter masked_fill masked_fill_ where cat stack"
)
_CREATION = (
    "zeros_like ones_like full_like empty_like empty zeros ones full new_zeros new_empty arange rand_like"
)
_WRITING = "copy_ _to_copy fill_ zero_ bernoulli_ lift_fresh"
_NO_ARITHMETIC = frozenset(f"{_LAYOUT} {_CHOICE} {_CREATION} {_WRITING}".split())


@dataclass(frozen=True)
class Step:
    """One operation that ran.

    Attributes:
        module: in which it ran, ``blocks.*`` standing for each layer; empty for the decoder itself.
        name: PyTorch's.
        shape: of its output.
        others: operations that are no matrix product; 0 for numbers kept once a row.
        product: (batch times rows, inner, columns), if it is a matrix product.
        is_activation: whether its output is of floating point, is no other tensor seen otherwise, and has more than
            one number for each position.
        is_copy: whether it is another tensor laid out anew, or in another dtype.
        visible: scores that it does not hide, if it hides scores.
    """

    module: str
    name: str
    shape: tuple[int, ...]
    others: int
    product: tuple[int, int, int] | None
    is_activation: bool
    is_copy: bool
    visible: int | None = None

    @property
    def flops(self) -> int:
        """2 for each multiplication of the product with its addition; 0 without one."""
        return 0 if self.product is None else 2 * math.prod(self.product)


class Meter(TorchDispatchMode):
    """Notes every operation that runs below it, on ``rows`` (B, T) of tokens; forward and backward pass alike."""

    def __init__(self, rows: tuple[int, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rows = rows
        self.steps: list[Step] = []
        self._modules: list[str] = [""]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        for output in tree_leaves(result):
            if isinstance(output, Tensor):
                self.steps.append(self._step(name, inputs, output))
                break  # what else comes out is a statistic of it
        return result

    @contextmanager
    def within(self, model: nn.Module) -> Iterator[None]:
        """Knows the modules of this model by name while it runs."""
        handles = []
        for path, module in model.named_modules():
            name = ".".join("*" if part.isdigit() else part for part in path.split("."))
            handles.append(module.register_forward_pre_hook(lambda *_, name=name: self._modules.append(name)))
            handles.append(module.register_forward_hook(lambda *_: self._leave(), always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _leave(self) -> None:
        self._modules.pop()

    def _step(self, name: str, inputs: list[Tensor], output: Tensor) -> Step:
        shape, product = tuple(output.shape), None
        is_wide = output.is_floating_point() and not self._is_statistic(output)
        is_new = all(output.untyped_storage()._cdata != tensor.untyped_storage()._cdata for tensor in inputs)
        others = 0
        if name in _PRODUCTS:
            left, right = inputs[-2:]
            product = (math.prod(left.shape[:-1]), left.shape[-1], right.shape[-1])
            others = output.numel() if len(inputs) == 3 else 0  # the bias
        elif name in _OF_INPUT and inputs[0].is_floating_point() and not self._is_statistic(inputs[0]):
            others = _OF_INPUT[name] * inputs[0].numel()
        elif name not in _OF_INPUT and name not in _NO_ARITHMETIC and is_wide:
            others = _OF_OUTPUT.get(name, 1) * output.numel()
        visible = None
        if name == "masked_fill" and is_wide and output.dim() == 4 and not output.is_meta:
            visible = int((output != -math.inf).sum())
        is_copy = name in ("clone", "_to_copy")
        return Step(self._modules[-1], name, shape, others, product, is_wide and is_new, is_copy, visible)

    def _is_statistic(self, tensor: Tensor) -> bool:
        """Whether it has one number for a row, or for a position, at the most."""
        return tensor.dim() < 2 or tensor.shape[-1] == 1 or tensor.numel() == math.prod(self._rows)


@dataclass(frozen=True)
class Reading:
    """A training step, as it was counted.

    Attributes:
        forward: the steps of the forward pass with its loss.
        backward: those of the backward pass.
        saved: bytes of each storage that is kept between the two, without the parameters.
    """

    forward: list[Step]
    backward: list[Step]
    saved: list[int]

    @property
    def steps(self) -> list[Step]:
        """Of both passes."""
        return self.forward + self.backward


def read_step(
    model: ProofLM, batch: int, n_tokens: int, *, training: bool = False, recomputed: bool = False
) -> Reading:
    """Runs one training step on token ids 0, 1, ... and counts; the model's gradients and mode stay as they are.

    Args:
        model: on any device, the meta device too.
        batch: rows.
        n_tokens: tokens of a row.
        training: with dropout, which the counts of operations leave out.
        recomputed: each layer runs again in the backward pass instead of keeping its tensors.
    """
    device, vocab_size = model.embedding.weight.device, model.config.vocab_size
    ids = (torch.arange(batch * n_tokens, device=device) % vocab_size).view(batch, n_tokens)
    was_training, rows = model.training, (batch, n_tokens)
    parameters = list(model.parameters())
    own = {parameter.untyped_storage()._cdata for parameter in parameters}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in own:
            kept.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    try:
        model.train(training)
        with torch.enable_grad(), _recomputing(model) if recomputed else nullcontext():
            saving = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
            with Meter(rows) as forward, forward.within(model), saving:
                loss = model(ids, ids.clone())[1]
            saved = [tensor.untyped_storage().nbytes() for tensor in kept.values()]
            with Meter(rows) as backward:
                torch.autograd.grad(loss, parameters)
    finally:
        model.train(was_training)
    return Reading(forward.steps, backward.steps, saved)


@contextmanager
def _recomputing(model: ProofLM) -> Iterator[None]:
    """Runs every layer under PyTorch's checkpointing, to its end, which it may otherwise spare."""
    for block in model.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        with set_checkpoint_early_stop(False):
            yield
    finally:
        for block in model.blocks:
            del block.forward
