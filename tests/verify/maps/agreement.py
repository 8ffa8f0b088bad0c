"""How far a foreign module lies from the oracle, seen through a map: values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from proof_lm.oracle import decoder_backward, decoder_forward
from proof_lm.verify.maps import WeightMap
from tolerances import UNIT_ROUNDOFF, decoder_chain, rounding

LogitsOf = Callable[[nn.Module, Tensor], Tensor]
ROWS, TIME = 3, 13

FLOAT32_ANGLES = 20 * (1 + TIME) * UNIT_ROUNDOFF[torch.float32]
"""transformers rounds the rotary cosines and sines to float32, by 2^-24 (1 + angle) at most, angle < 13; two layers and
a softmax over rather large scores carry it on. Relative."""
SEEN = 1e-3
"""What a wrong map moves is at least this, relative to the largest logit or gradient."""


def float64_bound(found: WeightMap) -> float:
    """Of two right computations in float64, relative."""
    return rounding(decoder_chain(found.config, TIME), magnitude=1.0)


def residuals(
    found: WeightMap,
    module: nn.Module,
    logits_of: LogitsOf,
    change: Callable[[str, np.ndarray], np.ndarray] | None = None,
) -> tuple[float, float]:
    """max |difference| of logits and of gradients, each relative to the oracle's largest.

    ``change`` spoils our tensors, by name, before the oracle sees them.
    """
    generator = torch.Generator().manual_seed(5)
    ids, labels = (
        torch.randint(found.config.vocab_size, (ROWS, TIME), generator=generator) for _ in range(2)
    )
    logits = logits_of(module, ids)
    parameters = dict(module.named_parameters())
    loss = nnf.cross_entropy(logits.flatten(0, 1), labels.flatten())
    grads = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    gradients = found.to_oracle(dict(zip(parameters, grads, strict=True)))

    weights = {name: tensor.detach().numpy() for name, tensor in found.to_oracle(parameters).items()}
    if change is not None:
        weights = {name: change(name, weight) for name, weight in weights.items()}
    trace = decoder_forward(found.config, weights, ids.numpy(), labels.numpy())
    expected = decoder_backward(found.config, weights, trace)
    apart = max(_apart(gradients[name], expected[name]) for name in weights)
    return (
        _apart(logits, trace.logits) / np.abs(trace.logits).max(),
        apart / max(np.abs(expected[name]).max() for name in weights),
    )


def _apart(tensor: Tensor | None, expected: np.ndarray) -> float:
    found = np.zeros_like(expected) if tensor is None else tensor.detach().numpy()
    return float(np.abs(found - expected).max())
