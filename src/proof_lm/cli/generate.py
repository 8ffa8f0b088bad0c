"""``proof-lm generate``: text from a model, as it comes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from proof_lm.cli.output import progress
from proof_lm.cli.targets import MAX_SEED, TARGET_HELP, resolve
from proof_lm.errors import InputError


def generate(
    target: Annotated[str, typer.Argument(help=TARGET_HELP)],
    prompt: Annotated[str, typer.Option("--prompt", help="The text to continue.")],
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=1, help="Stop after this many new tokens.")
    ] = 64,
    temperature: Annotated[
        float, typer.Option("--temperature", help="0 takes the most probable token; higher is more random.")
    ] = 0.0,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Draw among this many tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", help="Draw among the fewest tokens with this share of the mass."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=MAX_SEED, help="Of the draws, and of a preset's weights.")
    ] = 0,
) -> None:
    """Continue a prompt, one token at a time; the text goes to standard output."""
    import torch

    from proof_lm.generate import check_sampling, stream
    from proof_lm.text import StreamDecoder

    check_sampling(temperature, top_k, top_p)
    source = resolve(target)
    with progress().status(f"loading {source.name}"):
        model = source.load(seed)
        tokenizer = source.load_tokenizer(model.config.vocab_size)
    ids = tokenizer.encode(prompt)
    if not ids:
        raise InputError("--prompt is empty: give at least one character to continue")
    room = model.config.context_length - len(ids) + 1
    if room < 1:
        raise InputError(
            f"the prompt has {len(ids)} tokens, the model's context {model.config.context_length}"
        )
    if max_tokens > room:
        progress().print(f"the context has room for {room} new tokens", highlight=False)
    decoder = StreamDecoder(tokenizer)
    stops = set(tokenizer.eos_ids)
    steps = stream(
        model,
        torch.tensor([ids]),
        min(max_tokens, room),
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop_ids=sorted(stops),
    )
    for step in steps:
        if int(step) not in stops:
            _write(decoder.push(int(step)))
    _write(decoder.finish() + "\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
