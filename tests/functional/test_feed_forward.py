"""Activations, and both forms of the feed-forward layer, against torch.nn.functional."""

import pytest
import torch
import torch.nn.functional as nnf

from proof_lm.functional import ACTIVATIONS, gated_mlp, mlp
from tolerances import largest, rounding

PEERS = {
    "gelu": nnf.gelu,
    "gelu_tanh": lambda x: nnf.gelu(x, approximate="tanh"),
    "silu": nnf.silu,
    "relu": nnf.relu,
}
every_activation = pytest.mark.parametrize("name", PEERS)


@every_activation
def test_activation_and_its_slope_are_torchs(name: str) -> None:
    """Excludes the tanh form under the name of the exact one, and the other way round."""
    grid = torch.linspace(-9.0, 9.0, 721, dtype=torch.float64)
    ours, theirs = grid.clone().requires_grad_(), grid.clone().requires_grad_()
    outputs = ACTIVATIONS[name](ours), PEERS[name](theirs)
    for output in outputs:
        output.sum().backward()
    assert (outputs[0] - outputs[1]).abs().max() <= rounding(10, 9.0)
    assert (ours.grad - theirs.grad).abs().max() <= rounding(20, 9.0)
    for other, wrong in PEERS.items():
        if other != name:
            assert (outputs[0] - wrong(theirs)).abs().max() > 1e-4, f"{name} and {other} are not told apart"


def test_every_activation_of_the_config_is_there() -> None:
    assert set(ACTIVATIONS) == set(PEERS)


@every_activation
@pytest.mark.parametrize("has_bias", [True, False])
def test_mlp_and_gated_mlp_are_their_formulas(name: str, has_bias: bool) -> None:
    """Excludes gate and up exchanged, a bias left out, and an activation on the wrong branch."""
    random = torch.Generator().manual_seed(1)

    def affine(out: int, in_: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        weight = torch.randn(out, in_, dtype=torch.float64, generator=random)
        return weight, torch.randn(out, dtype=torch.float64, generator=random) if has_bias else None

    inputs = torch.randn(5, 3, 7, dtype=torch.float64, generator=random)
    gate, up, down, act = affine(11, 7), affine(11, 7), affine(7, 11), PEERS[name]
    plain = nnf.linear(act(nnf.linear(inputs, *up)), *down)
    gated = nnf.linear(act(nnf.linear(inputs, *gate)) * nnf.linear(inputs, *up), *down)
    exchanged = nnf.linear(act(nnf.linear(inputs, *up)) * nnf.linear(inputs, *gate), *down)
    bound = rounding(7 + 11 + 10, 11 * largest(gated))
    assert (mlp(inputs, up, down, name) - plain).abs().max() <= bound
    assert (gated_mlp(inputs, gate, up, down, name) - gated).abs().max() <= bound
    assert (gated - exchanged).abs().max() > 1e6 * bound
