"""The residual path: what enters a block leaves it unchanged, plus its branches."""

from collections.abc import Iterator

import torch

from proof_lm.dims import Float, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import ProofSubject
from proof_lm.verify.tolerance import forward_chain, rounding_bound
from proof_lm.verify.verdict import EXACT, Measurement

NO_ATTENTION: dict[str, Tensor | float] = {"attention.out.weight": 0.0, "attention.out.bias": 0.0}
NO_FEED_FORWARD: dict[str, Tensor | float] = {"feed_forward.down.weight": 0.0, "feed_forward.down.bias": 0.0}


def check_residual(subject: ProofSubject, probe: Probe) -> Iterator[Measurement]:
    """Every block, with the last projection of one or both of its branches at zero.

    Both at zero: the identity, bit for bit, forward (inputs of rms 1e-3 to 1e3) and backward. The
    feed-forward branch at zero: x + attention(norm(x)). Neither: y + feed_forward(norm(y)) of that y. The
    branches are the block's own layers, run by themselves.
    """
    config = subject.config
    for path in subject.paths:
        for layer in range(config.n_layers):
            random = probe.random(f"residual {layer}")
            inputs = torch.from_numpy(random.standard_normal((3, 5, config.d_model)))
            inputs = inputs * torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64)[:, None, None]
            yield from _check_identity(subject, f"blocks.{layer}", inputs, path)
            yield from _check_branches(subject, f"blocks.{layer}", inputs[1:2], path)


def _check_identity(
    subject: ProofSubject, name: str, inputs: Float[Tensor, "B T D"], path: str
) -> Iterator[Measurement]:
    places = torch.arange(inputs.shape[1]).expand(inputs.shape[:2])
    inputs = inputs.clone().requires_grad_()
    output = subject.run_layer(name, inputs, places, path, {**NO_ATTENTION, **NO_FEED_FORWARD})
    upstream = inputs.detach().flip(-1)
    (gradient,) = torch.autograd.grad(output, inputs, upstream)
    error = float((output - inputs).detach().abs().max())
    yield Measurement(path, "max |block - identity|, silent branches", error, EXACT, name)
    error = float((gradient - upstream).abs().max())
    yield Measurement(path, "max |gradient - upstream|, silent branches", error, EXACT, name)


def _check_branches(
    subject: ProofSubject, name: str, inputs: Float[Tensor, "B T D"], path: str
) -> Iterator[Measurement]:
    places = torch.arange(inputs.shape[1]).expand(inputs.shape[:2])
    with torch.no_grad():
        normed = subject.run_pointwise(f"{name}.attention_norm", inputs)
        middle = inputs + subject.run_layer(f"{name}.attention", normed, places, path)
        normed = subject.run_pointwise(f"{name}.feed_forward_norm", middle)
        whole = middle + subject.run_pointwise(f"{name}.feed_forward", normed)
        found = {
            "x + attention(norm(x))": (
                subject.run_layer(name, inputs, places, path, NO_FEED_FORWARD),
                middle,
            ),
            "y + feed_forward(norm(y))": (subject.run_layer(name, inputs, places, path), whole),
        }
    for case, (output, expected) in found.items():
        bound = rounding_bound(forward_chain(subject.config, inputs.shape[1]), float(expected.abs().max()))
        error = float((output - expected).abs().max())
        yield Measurement(path, f"max |block - ({case})|", error, bound, name)


RESIDUAL = Contract(
    "residual-path",
    "A block whose branches are silent is the identity; a branch adds to what enters it.",
    frozenset({"parts"}),
    check_residual,
)
