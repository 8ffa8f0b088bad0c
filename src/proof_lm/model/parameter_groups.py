"""Which parameters weight decay reaches."""

import math
from typing import Any

from torch import nn

from proof_lm.errors import InputError


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for an optimizer of ``torch.optim``: matrices, which decay, and vectors, which do not.

    Matrices are the parameters of two dimensions or more: linear weights and embedding tables. Vectors are gains
    and biases. Every parameter is in one of the groups, once, a tied matrix too. This is how GPTs are trained
    (minGPT and nanoGPT, Karpathy 2020 and 2022), with decay decoupled from the gradient (Loshchilov & Hutter 2019),
    as in ``torch.optim.AdamW``.

    Args:
        model: its parameters, in the order of ``parameters()``.
        weight_decay: the decay of the matrices.

    Raises:
        InputError: ``weight_decay`` is negative or not finite.
    """
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        raise InputError(f"weight_decay must be a finite number, at least 0, got {weight_decay}")
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
