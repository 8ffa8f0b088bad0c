"""The mathematics of the decoder as pure functions of tensors: no parameters, no config."""

from proof_lm.functional.attention import AttentionBackend, attention, attention_weights, causal_mask
from proof_lm.functional.cross_entropy import cross_entropy
from proof_lm.functional.dropout import dropout
from proof_lm.functional.embedding import embedding
from proof_lm.functional.feed_forward import ACTIVATIONS, gated_mlp, gelu, gelu_tanh, mlp, relu, silu
from proof_lm.functional.linear import linear
from proof_lm.functional.norm import layer_norm, rms_norm
from proof_lm.functional.rope import Rotation, rope_rotation, rotate
from proof_lm.functional.softmax import softmax

__all__ = [
    "ACTIVATIONS",
    "AttentionBackend",
    "Rotation",
    "attention",
    "attention_weights",
    "causal_mask",
    "cross_entropy",
    "dropout",
    "embedding",
    "gated_mlp",
    "gelu",
    "gelu_tanh",
    "layer_norm",
    "linear",
    "mlp",
    "relu",
    "rms_norm",
    "rope_rotation",
    "rotate",
    "silu",
    "softmax",
]
