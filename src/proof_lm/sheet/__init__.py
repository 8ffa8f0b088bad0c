"""What a decoder weighs, derived from its config alone: no model is built, no torch imported."""

from proof_lm.sheet.parameters import parameter_count
from proof_lm.sheet.tensors import TensorSpec, tensors

__all__ = ["TensorSpec", "parameter_count", "tensors"]
