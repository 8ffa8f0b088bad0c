"""Which parameters decay: by name, each once, and what AdamW makes of the groups."""

import math

import pytest
import torch

from model.random_decoder import random_decoder
from proof_lm.errors import InputError
from proof_lm.model import ProofLM
from proof_lm.sheet import tensors
from sizes import LEARNED, MODERN, SMALL

CONFIGS = {"tied": SMALL, "untied": MODERN, "learned": LEARNED}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@every_config
def test_matrices_decay_gains_and_biases_do_not_and_each_is_there_once(config) -> None:
    """By the sheet's shapes; excludes a tied matrix in both groups or twice, and one that is forgotten."""
    model = ProofLM(config)
    names = {parameter: name for name, parameter in model.named_parameters()}
    matrices, vectors = model.parameter_groups(0.1)
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert set(matrices) == set(vectors) == {"params", "weight_decay"}
    specs = tensors(config)
    for group, n_axes in ((matrices, 2), (vectors, 1)):
        expected = [spec.name for spec in specs if len(spec.shape) == n_axes]
        assert sorted(names[parameter] for parameter in group["params"]) == sorted(expected)
    assert sum(p.numel() for g in (matrices, vectors) for p in g["params"]) == model.parameter_count


@every_config
def test_adamw_shrinks_the_matrices_alone(config) -> None:
    """With gradients of 0 a decoupled step is w - lr * decay * w (Loshchilov & Hutter 2019, algorithm 2)."""
    model, weights = random_decoder(config)
    optimizer = torch.optim.AdamW(model.parameter_groups(0.25), lr=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        before = torch.from_numpy(weights[name])
        expected = before * (1.0 - 0.5 * 0.25) if before.dim() == 2 else before
        assert torch.equal(parameter.detach(), expected), name


def test_no_decay_and_decay_out_of_range() -> None:
    model = ProofLM(SMALL)
    assert [group["weight_decay"] for group in model.parameter_groups(0.0)] == [0.0, 0.0]
    for value in (-1e-9, -1.0, math.nan, math.inf):
        message = f"^weight_decay must be a finite number, at least 0, got {value}$"
        with pytest.raises(InputError, match=message):
            model.parameter_groups(value)
