"""The decoder once more, in NumPy float64: forward, hand-derived backward, and differences to check both.

The witness for the PyTorch model. It shares nothing with it but the config and the errors, and importing
it imports no torch.

``feed_forward`` here is the chapter's function, which takes the place of the submodule of that name.
"""

from proof_lm.oracle.activation import activation_backward, activation_forward
from proof_lm.oracle.attention import (
    AttentionTrace,
    HeadTrace,
    attention_backward,
    attention_forward,
    grouped_attention_backward,
    grouped_attention_forward,
    head_attention_backward,
    head_attention_forward,
)
from proof_lm.oracle.block import BlockTrace, block_backward, block_forward
from proof_lm.oracle.chapter import (
    batched_multi_head_attention,
    causal_mask,
    decoder_block,
    feed_forward,
    gelu,
    gradient_norm_by_depth,
    layer_norm,
    merge_heads,
    multi_head_attention,
    output_projection_loss_and_grad,
    row_softmax,
    single_head_attention,
    split_heads,
    tiny_transformer_forward,
)
from proof_lm.oracle.decoder import DecoderTrace, decoder_backward, decoder_forward
from proof_lm.oracle.differences import central_difference
from proof_lm.oracle.embedding import embedding_backward, embedding_forward
from proof_lm.oracle.feed_forward import FeedForwardTrace, feed_forward_backward, feed_forward_forward
from proof_lm.oracle.linear import linear_backward, linear_forward
from proof_lm.oracle.loss import CrossEntropyTrace, cross_entropy_backward, cross_entropy_forward
from proof_lm.oracle.norm import (
    NormTrace,
    layer_norm_backward,
    layer_norm_forward,
    rms_norm_backward,
    rms_norm_forward,
)
from proof_lm.oracle.parameters import check_weights, parameter_shapes
from proof_lm.oracle.rope import rope_angles, rotate_backward, rotate_forward
from proof_lm.oracle.softmax import softmax_backward, softmax_forward

__all__ = [
    "AttentionTrace",
    "BlockTrace",
    "CrossEntropyTrace",
    "DecoderTrace",
    "FeedForwardTrace",
    "HeadTrace",
    "NormTrace",
    "activation_backward",
    "activation_forward",
    "attention_backward",
    "attention_forward",
    "batched_multi_head_attention",
    "block_backward",
    "block_forward",
    "causal_mask",
    "central_difference",
    "check_weights",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "decoder_backward",
    "decoder_block",
    "decoder_forward",
    "embedding_backward",
    "embedding_forward",
    "feed_forward",
    "feed_forward_backward",
    "feed_forward_forward",
    "gelu",
    "gradient_norm_by_depth",
    "grouped_attention_backward",
    "grouped_attention_forward",
    "head_attention_backward",
    "head_attention_forward",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_forward",
    "linear_backward",
    "linear_forward",
    "merge_heads",
    "multi_head_attention",
    "output_projection_loss_and_grad",
    "parameter_shapes",
    "rms_norm_backward",
    "rms_norm_forward",
    "rope_angles",
    "rotate_backward",
    "rotate_forward",
    "row_softmax",
    "single_head_attention",
    "softmax_backward",
    "softmax_forward",
    "split_heads",
    "tiny_transformer_forward",
]
