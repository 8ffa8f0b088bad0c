"""Prefill of a prompt, and the greedy decoding that follows it, batch 1, float32."""

from __future__ import annotations

import tempfile
import time
from functools import cache, partial
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache, StaticCache

import shapes
from harness import Contender, Run, Sample, Task, progress
from proof_lm.errors import WeightsError
from proof_lm.model import DecoderConfig, ProofLM
from proof_lm.weights import find_smollm2, load_model, save_hf

Phase = Literal["prefill", "decode"]
COMPARED = 32  # greedy tokens that must agree: rounding may part two correct decoders in the long run


def tasks(tiny: bool) -> list[Task]:
    """Prefill and decoding on the SmolLM2-135M shape, with its real weights where they are installed."""
    config = shapes.shrunk(shapes.SMOLLM2) if tiny else shapes.SMOLLM2
    prompt_length, new = (16, 8) if tiny else (512, 128)
    prefill = f"{prompt_length} tokens into an empty cache, logits of the last one"
    decode = f"{new} greedy steps of one token after a prompt of {prompt_length}, the prompt not timed"
    return [
        Task(
            f"prefill-{prompt_length}",
            prefill,
            _contenders(config, "prefill", prompt_length, new),
            peer="transformers",
            tokens=prompt_length,
        ),
        Task(
            f"decode-{new}",
            decode,
            _contenders(config, "decode", prompt_length, new),
            peer="transformers",
            tokens=new,
            rounds=5,
        ),
    ]


def _contenders(config: DecoderConfig, phase: Phase, prompt_length: int, new: int) -> tuple[Contender, ...]:
    sizes = (config, phase, prompt_length, new)
    return (
        Contender("proof_lm", partial(_ours, *sizes)),
        Contender("transformers", partial(_theirs, *sizes, static=False)),
        Contender("transformers, StaticCache", partial(_theirs, *sizes, static=True)),
    )


def _ours(config: DecoderConfig, phase: Phase, prompt_length: int, new: int) -> Run:
    model = _weights(config).eval()
    prompt = _prompt(config, prompt_length)

    @torch.no_grad()
    def run() -> Sample:
        start = time.perf_counter()
        kv_cache = model.new_cache(1, prompt_length + new)
        logits = model.next_logits(prompt, cache=kv_cache)
        if phase == "prefill":
            return _sample(start, [logits.argmax(-1)])
        tokens = [logits.argmax(-1)]
        start = time.perf_counter()
        for _ in range(new):
            logits = model.next_logits(tokens[-1][:, None], cache=kv_cache)
            tokens.append(logits.argmax(-1))
        return _sample(start, tokens)

    return run


def _theirs(config: DecoderConfig, phase: Phase, prompt_length: int, new: int, *, static: bool) -> Run:
    model = _converted(_weights(config)).eval()
    prompt = _prompt(config, prompt_length)
    cache_argument = "cache" if "cache" in signature(model.forward).parameters else "past_key_values"

    def empty_cache() -> Any:
        return StaticCache(model.config, max_cache_len=prompt_length + new) if static else DynamicCache()

    def last_logits(ids: Tensor, kv_cache: Any) -> Tensor:
        answer = model(input_ids=ids, use_cache=True, logits_to_keep=1, **{cache_argument: kv_cache})
        logits: Tensor = answer.logits[:, -1]
        return logits

    @torch.no_grad()
    def run() -> Sample:
        start = time.perf_counter()
        kv_cache = empty_cache()
        logits = last_logits(prompt, kv_cache)
        if phase == "prefill":
            return _sample(start, [logits.argmax(-1)])
        tokens = [logits.argmax(-1)]
        start = time.perf_counter()
        for _ in range(new):
            logits = last_logits(tokens[-1][:, None], kv_cache)
            tokens.append(logits.argmax(-1))
        return _sample(start, tokens)

    return run


def _sample(start: float, tokens: list[Tensor]) -> Sample:
    seconds = time.perf_counter() - start
    return Sample(seconds, outcome=tuple(torch.cat(tokens[:COMPARED]).tolist()))


def _prompt(config: DecoderConfig, n_tokens: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(config.vocab_size, (1, n_tokens), generator=generator)


@cache
def _smollm2_file() -> Path | None:
    try:
        return find_smollm2()
    except WeightsError as error:
        progress(f"random weights instead of SmolLM2's: {error}")
        return None


def _weights(config: DecoderConfig) -> ProofLM:
    """The real SmolLM2 where it is installed; random weights otherwise, and in the tiny size."""
    path = _smollm2_file() if config == shapes.SMOLLM2 else None
    return shapes.proof_lm_model(config) if path is None else load_model(path)


def _converted(model: ProofLM) -> Any:
    """The same weights in transformers, by way of the directory that ``save_hf`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        save_hf(model, Path(folder) / "model")
        return AutoModelForCausalLM.from_pretrained(
            Path(folder) / "model", attn_implementation="sdpa", dtype=torch.float32
        )
