"""Decoders with one planted fault each: the proof that every contract can fail."""

from proof_lm.verify.mutants import attention, block, decoder, rope
from proof_lm.verify.mutants.mutant import BASE, Mutant

MUTANTS: tuple[Mutant, ...] = (*attention.MUTANTS, *rope.MUTANTS, *block.MUTANTS, *decoder.MUTANTS)

__all__ = ["BASE", "MUTANTS", "Mutant"]
