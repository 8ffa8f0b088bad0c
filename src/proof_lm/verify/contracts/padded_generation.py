"""Rows of a padded batch are continued as each row alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from proof_lm.dims import Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Measurement

N_ROWS, N_NEW = 12, 6  # prompts, and tokens added to each: a row that repeats one token shows little
N_ALONE = 4  # of them, compared with each alone
TEMPERATURE = 2.0


def check_padded_generation(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Prompts of different length, padded on the left, continued greedily by up to 6 tokens.

    Counted are the tokens unlike those of each row alone; then those unlike a second run's. Of a strict subject
    draws are compared too, as they depend on every logit: from one seed, with all rows padded by two more.
    """
    n_prompt = probe.n_short - 2
    n_new = min(N_NEW, subject.context_length - n_prompt - 2)
    if n_prompt < 2 or n_new < 2:
        raise Inapplicable("context_length leaves no room for padded prompts and what follows")
    prompts = probe.tokens("prompts", 2 if probe.is_large else N_ROWS, n_prompt)
    pads = torch.arange(len(prompts)) % min(3, n_prompt)
    real = torch.arange(n_prompt)[None] >= pads[:, None]
    for path in subject.paths[-1:] if probe.is_large else subject.paths:
        together = subject.generate(prompts, n_new, path, padding_mask=real)[:, n_prompt:]
        alone = torch.cat(
            [
                subject.generate(row[kept][None], n_new, path)[:, int(kept.sum()) :]
                for row, kept in zip(prompts[:N_ALONE], real, strict=False)
            ]
        )
        together, others = together[:N_ALONE], together
        differ = (together != alone).any(0).nonzero().flatten().tolist()
        where = f"from step {differ[0]}" if differ else ""
        yield Measurement(
            path, "tokens unlike the row's alone", float((together != alone).sum()), EXACT, where
        )
        again = subject.generate(prompts, n_new, path, padding_mask=real)[:, n_prompt:]
        yield Measurement(path, "tokens unlike the first run's", float((again != others).sum()), EXACT)
        if subject.strict:
            yield _drawn(subject, path, prompts, real, n_new)


def _drawn(subject: Subject, path: str, prompts: Tensor, real: Tensor, n_new: int) -> Measurement:
    pads = torch.zeros(len(prompts), 2, dtype=torch.bool)
    wider, wider_real = torch.cat([prompts[:, :2], prompts], 1), torch.cat([pads, real], 1)
    draws = [
        subject.generate(ids, n_new, path, padding_mask=mask, temperature=TEMPERATURE, seed=1)[:, -n_new:]
        for ids, mask in ((prompts, real), (wider, wider_real))
    ]
    unlike = float((draws[0] != draws[1]).sum())
    return Measurement(path, "draws unlike those with more padding", unlike, EXACT)


PADDED_GENERATION = Contract(
    "padded-generation",
    "Each row of a left-padded batch is continued as it is alone, and again the same.",
    frozenset({"padding mask", "generation"}),
    check_padded_generation,
)
