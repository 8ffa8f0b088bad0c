"""A verification as a table for people and as JSON for machines."""

from proof_lm.verify.report.machine import from_dict, to_dict
from proof_lm.verify.report.terminal import render

__all__ = ["from_dict", "render", "to_dict"]
