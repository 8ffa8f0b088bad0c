"""The zoo: every causal language model that transformers has, small, judged one by one."""

from proof_lm.verify.zoo.entry import ZooEntry, decided_pairs, exit_status
from proof_lm.verify.zoo.explained import EXPLAINED, Explanation, explanations
from proof_lm.verify.zoo.page import zoo_to_html
from proof_lm.verify.zoo.report import render_zoo, zoo_to_dict
from proof_lm.verify.zoo.tiny import causal_classes, initial, require_class, tiny

__all__ = [
    "EXPLAINED",
    "Explanation",
    "ZooEntry",
    "causal_classes",
    "decided_pairs",
    "exit_status",
    "explanations",
    "initial",
    "render_zoo",
    "require_class",
    "tiny",
    "zoo_to_dict",
    "zoo_to_html",
]
