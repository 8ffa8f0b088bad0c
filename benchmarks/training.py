"""One training step: forward, loss, backward, and the same fused AdamW for everybody."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import shapes
from harness import Contender, Run, Sample, Task
from proof_lm.model import DecoderConfig, ProofLM

Loss = Callable[[Tensor, Tensor], Tensor]


def tasks(tiny: bool) -> list[Task]:
    """The training steps, with few tokens and narrow layers where ``tiny``."""
    char = (2, 16) if tiny else (16, 256)
    long = (1, 16) if tiny else (1, 512)
    return [
        _task("train-char-llama", shapes.CHAR_LLAMA, *char, tiny),
        _task("train-char-gpt2", shapes.CHAR_GPT2, *char, tiny),
        _task("train-smollm2", shapes.SMOLLM2, *long, tiny),
    ]


def _task(name: str, config: DecoderConfig, batch: int, n_tokens: int, tiny: bool) -> Task:
    config = shapes.shrunk(config) if tiny else config
    shape = (batch, n_tokens)
    contenders = [
        Contender("proof_lm", partial(_ours, config, shape)),
        Contender("transformers", partial(_theirs, config, shape, fused_gelu=True)),
    ]
    if config.activation == "gelu_tanh":
        contenders.append(
            Contender("transformers, gelu_new", partial(_theirs, config, shape, fused_gelu=False))
        )
    about = f"forward + backward + fused AdamW, float32, batch {batch}, {n_tokens} tokens a row"
    return Task(name, about, tuple(contenders), peer="transformers", tokens=batch * n_tokens)


def _ours(config: DecoderConfig, shape: tuple[int, int]) -> Run:
    model = shapes.proof_lm_model(config)

    def loss_of(ids: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = model(ids, labels)[1]
        return loss

    return _stepper(config, model, loss_of, shape)


def _theirs(config: DecoderConfig, shape: tuple[int, int], *, fused_gelu: bool) -> Run:
    """The loss is taken from the logits: cheaper than ``labels=``, which pads and shifts them first."""
    model = shapes.transformers_model(config, fused_gelu=fused_gelu)

    def loss_of(ids: Tensor, labels: Tensor) -> Tensor:
        logits = model(input_ids=ids, use_cache=False).logits
        return cross_entropy(logits.flatten(0, 1), labels.flatten())

    return _stepper(config, model, loss_of, shape)


def _stepper(config: DecoderConfig, model: nn.Module, loss_of: Loss, shape: tuple[int, int]) -> Run:
    model.train()
    _check_size(config, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(config.vocab_size, (shape[0], shape[1] + 1), generator=generator)
    ids, labels = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def run() -> Sample:
        start = time.perf_counter()
        loss = loss_of(ids, labels)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - start
        assert torch.isfinite(loss)
        return Sample(seconds)

    return run


def _check_size(config: DecoderConfig, model: nn.Module) -> None:
    """Contenders of a different size would make the ratio meaningless."""
    with torch.device("meta"):
        wanted = ProofLM(config).parameter_count
    found = sum(parameter.numel() for parameter in model.parameters())
    assert found == wanted, f"{type(model).__name__} has {found} parameters, the config has {wanted}"
