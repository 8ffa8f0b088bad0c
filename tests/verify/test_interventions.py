"""What one replaced token moves, on functions whose reach is known."""

import torch

from proof_lm.verify.contracts.interventions import intervene

ROW, OTHERS = torch.arange(6), torch.arange(6) + 10


def _sum_of_last(ids: torch.Tensor, n: int) -> torch.Tensor:
    """Each position's sum of itself and the n - 1 before it."""
    total = ids.double().cumsum(1)
    return (total - torch.nn.functional.pad(total, (n, 0))[:, : ids.shape[1]])[..., None]


def test_a_causal_function_has_no_leak_and_its_own_reach() -> None:
    found = intervene(lambda ids: _sum_of_last(ids, 3), ROW, OTHERS, range(6))
    assert found.leak().value == 0.0
    assert found.beyond(2).value == 0.0
    assert found.beyond(1).value == 10.0
    distance = torch.arange(6) - torch.arange(6)[:, None]
    assert found.least((distance >= 0) & (distance < 3)).value == 10.0
    assert found.least((distance >= 0) & (distance < 4)).value == 0.0


def test_a_leak_names_the_token_and_the_position() -> None:
    found = intervene(lambda ids: _sum_of_last(ids.roll(-1, 1), 1), ROW, OTHERS, [3])
    leak = found.leak()
    assert (leak.value, leak.where) == (10.0, "token 3 moves position 2")


def test_not_a_number_is_a_leak() -> None:
    found = intervene(lambda ids: torch.full((*ids.shape, 1), torch.nan), ROW, OTHERS, [3])
    assert found.leak().value != found.leak().value
