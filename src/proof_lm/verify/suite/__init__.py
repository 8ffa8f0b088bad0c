"""Mutation testing of somebody's tests: which planted faults they notice."""

from proof_lm.verify.suite.runs import Examined, Outcome, Score, Suite, SuiteError, examine, score

__all__ = ["Examined", "Outcome", "Score", "Suite", "SuiteError", "examine", "score"]
