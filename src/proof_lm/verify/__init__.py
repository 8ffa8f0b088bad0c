"""The verifier: contracts that a decoder must keep, measured on a subject, and the verdicts.

``verify(Subject(name, model))`` judges a model by all contracts.
"""

from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts import CONTRACTS
from proof_lm.verify.mutants import MUTANTS, Mutant
from proof_lm.verify.randomize import randomized
from proof_lm.verify.runner import plan, verify
from proof_lm.verify.subject import Subject
from proof_lm.verify.verdict import Bound, ContractResult, Measurement, Verdict, Verification

__all__ = [
    "CONTRACTS",
    "MUTANTS",
    "Bound",
    "Contract",
    "ContractResult",
    "Measurement",
    "Mutant",
    "Subject",
    "Verdict",
    "Verification",
    "plan",
    "randomized",
    "verify",
]
