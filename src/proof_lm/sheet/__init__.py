"""Shapes, parameters, operations and memory of a decoder, derived from its config alone: no model, no torch."""

from proof_lm.sheet.activations import SavedTensor, saved_bytes, saved_tensors
from proof_lm.sheet.dimensions import dimensions, visible_pairs
from proof_lm.sheet.flops import CONVENTIONS, Flops, forward_flops, recomputation_flops, step_flops
from proof_lm.sheet.memory import activation_bytes, cache_bytes_per_token
from proof_lm.sheet.operations import Operation, Product, operations
from proof_lm.sheet.parameters import parameter_count
from proof_lm.sheet.plan import Machine, Plan, device_memory, make_plan, plan_run
from proof_lm.sheet.sheet import Sheet
from proof_lm.sheet.tensors import TensorSpec, tensors

__all__ = [
    "CONVENTIONS",
    "Flops",
    "Machine",
    "Operation",
    "Plan",
    "Product",
    "SavedTensor",
    "Sheet",
    "TensorSpec",
    "activation_bytes",
    "cache_bytes_per_token",
    "device_memory",
    "dimensions",
    "forward_flops",
    "make_plan",
    "operations",
    "parameter_count",
    "plan_run",
    "recomputation_flops",
    "saved_bytes",
    "saved_tensors",
    "step_flops",
    "tensors",
    "visible_pairs",
]
