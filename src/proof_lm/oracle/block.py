"""The pre-norm decoder block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proof_lm.config import DecoderConfig
from proof_lm.oracle.arrays import BoolArray, FloatArray, IntArray
from proof_lm.oracle.attention import AttentionTrace, attention_backward, attention_forward
from proof_lm.oracle.feed_forward import FeedForwardTrace, feed_forward_backward, feed_forward_forward
from proof_lm.oracle.norm import NormTrace, norm_backward, norm_forward
from proof_lm.oracle.parameters import inside, prefixed


@dataclass(frozen=True, eq=False)
class BlockTrace:
    """What every part of the block put out, each (B, T, D), and the parts' own traces.

    ``middle`` is the residual stream between the two branches, ``output`` the one that leaves the block.
    """

    hidden: FloatArray
    attention_norm: FloatArray
    attention: FloatArray
    middle: FloatArray
    feed_forward_norm: FloatArray
    feed_forward: FloatArray
    output: FloatArray
    attention_norm_trace: NormTrace
    attention_trace: AttentionTrace
    feed_forward_norm_trace: NormTrace
    feed_forward_trace: FeedForwardTrace


def block_forward(
    config: DecoderConfig,
    parameters: Mapping[str, FloatArray],
    hidden: FloatArray,
    *,
    visible: BoolArray,
    position_ids: IntArray,
) -> BlockTrace:
    """m = x + attention(norm(x)), y = m + feed_forward(norm(m)) (pre-norm: Xiong et al. 2020).

    Args:
        config: the decoder's definition.
        parameters: ``attention_norm.*``, ``attention.*``, ``feed_forward_norm.*``, ``feed_forward.*``.
        hidden: x, (B, T, D).
        visible: boolean, broadcast to (B, T, T), True = visible.
        position_ids: (B, T).

    Returns:
        The trace, whose ``output`` is y, (B, T, D).

    Raises:
        InputError: the shapes do not fit each other.
    """
    normed, norm_trace = norm_forward(config, inside(parameters, "attention_norm"), hidden)
    attention, attention_trace = attention_forward(
        config, inside(parameters, "attention"), normed, visible=visible, position_ids=position_ids
    )
    middle = hidden + attention
    middle_normed, middle_norm_trace = norm_forward(config, inside(parameters, "feed_forward_norm"), middle)
    feed_forward, feed_forward_trace = feed_forward_forward(
        config, inside(parameters, "feed_forward"), middle_normed
    )
    return BlockTrace(
        hidden=hidden,
        attention_norm=normed,
        attention=attention,
        middle=middle,
        feed_forward_norm=middle_normed,
        feed_forward=feed_forward,
        output=middle + feed_forward,
        attention_norm_trace=norm_trace,
        attention_trace=attention_trace,
        feed_forward_norm_trace=middle_norm_trace,
        feed_forward_trace=feed_forward_trace,
    )


def block_backward(
    config: DecoderConfig, parameters: Mapping[str, FloatArray], grad: FloatArray, trace: BlockTrace
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Gradients of :func:`block_forward`: with respect to the input, and to every parameter by name.

    Each residual sum passes its gradient on unchanged and adds the branch's.
    """
    grad_normed, of_feed_forward = feed_forward_backward(
        config, inside(parameters, "feed_forward"), grad, trace.feed_forward_trace
    )
    through_branch, of_feed_forward_norm = norm_backward(
        config, inside(parameters, "feed_forward_norm"), grad_normed, trace.feed_forward_norm_trace
    )
    grad_middle = grad + through_branch
    grad_normed, of_attention = attention_backward(
        config, inside(parameters, "attention"), grad_middle, trace.attention_trace
    )
    through_branch, of_attention_norm = norm_backward(
        config, inside(parameters, "attention_norm"), grad_normed, trace.attention_norm_trace
    )
    return grad_middle + through_branch, {
        **prefixed("attention_norm", of_attention_norm),
        **prefixed("attention", of_attention),
        **prefixed("feed_forward_norm", of_feed_forward_norm),
        **prefixed("feed_forward", of_feed_forward),
    }
