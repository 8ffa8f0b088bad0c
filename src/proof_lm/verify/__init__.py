"""The verifier: contracts that a decoder must keep, measured on a subject, and the verdicts.

``verify(Subject(name, model))`` judges a model by all contracts.
"""

from proof_lm.verify.contract import LEVELS, Contract, Level
from proof_lm.verify.contracts import CONTRACTS
from proof_lm.verify.diagnosis import Diagnosis, diagnose
from proof_lm.verify.matrix import KillMatrix, Row, kill_matrix
from proof_lm.verify.mutants import MUTANTS, Mutant
from proof_lm.verify.mutants.controls import CONTROLS, Control
from proof_lm.verify.mutants.reports import reports_table
from proof_lm.verify.randomize import randomized
from proof_lm.verify.runner import at_level, plan, verify
from proof_lm.verify.subjects import Adapter, ForeignSubject, ProofSubject, Subject
from proof_lm.verify.verdict import Bound, ContractResult, Measurement, Verdict, Verification

__all__ = [
    "CONTRACTS",
    "CONTROLS",
    "LEVELS",
    "MUTANTS",
    "Adapter",
    "Bound",
    "Contract",
    "ContractResult",
    "Control",
    "Diagnosis",
    "ForeignSubject",
    "KillMatrix",
    "Level",
    "Measurement",
    "Mutant",
    "ProofSubject",
    "Row",
    "Subject",
    "Verdict",
    "Verification",
    "at_level",
    "diagnose",
    "kill_matrix",
    "plan",
    "randomized",
    "reports_table",
    "verify",
]
