"""Decoders with one planted fault each: the proof that every contract can fail."""

from proof_lm.verify.mutants import (
    accounting,
    block,
    cache,
    configuration,
    documents,
    feed_forward,
    heads,
    loss,
    modes,
    norm,
    padding,
    precision,
    residual,
    rope,
    routing,
    sampling,
    scores,
    storage,
    tables,
    tying,
    visibility,
    window,
)
from proof_lm.verify.mutants.mutant import BASE, Mutant

MUTANTS: tuple[Mutant, ...] = (
    *visibility.MUTANTS,
    *window.MUTANTS,
    *documents.MUTANTS,
    *heads.MUTANTS,
    *routing.MUTANTS,
    *scores.MUTANTS,
    *rope.MUTANTS,
    *tables.MUTANTS,
    *block.MUTANTS,
    *padding.MUTANTS,
    *cache.MUTANTS,
    *norm.MUTANTS,
    *residual.MUTANTS,
    *feed_forward.MUTANTS,
    *loss.MUTANTS,
    *tying.MUTANTS,
    *accounting.MUTANTS,
    *storage.MUTANTS,
    *modes.MUTANTS,
    *configuration.MUTANTS,
    *precision.MUTANTS,
    *sampling.MUTANTS,
)

__all__ = ["BASE", "MUTANTS", "Mutant"]
