"""What can be judged: ProofLM itself, and any other PyTorch decoder."""

from proof_lm.verify.subjects.adapter import Adapter
from proof_lm.verify.subjects.copies import copied
from proof_lm.verify.subjects.foreign import ForeignSubject
from proof_lm.verify.subjects.proof_lm import ProofSubject
from proof_lm.verify.subjects.subject import Capability, Finding, Subject, SubjectError, subject_runs

__all__ = [
    "Adapter",
    "Capability",
    "Finding",
    "ForeignSubject",
    "ProofSubject",
    "Subject",
    "SubjectError",
    "copied",
    "subject_runs",
]
