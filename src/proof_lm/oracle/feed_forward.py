"""The feed-forward layer: the two-matrix MLP and the gated form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proof_lm.config import DecoderConfig
from proof_lm.oracle.activation import activation_backward, activation_forward
from proof_lm.oracle.arrays import FloatArray, require_shape
from proof_lm.oracle.linear import linear_backward, linear_forward


@dataclass(frozen=True, eq=False)
class FeedForwardTrace:
    """The layer's input (..., D); up, gate (None without one), activated and combined, all (..., F)."""

    hidden: FloatArray
    up: FloatArray
    gate: FloatArray | None
    activated: FloatArray
    combined: FloatArray


def feed_forward_forward(
    config: DecoderConfig, parameters: Mapping[str, FloatArray], hidden: FloatArray
) -> tuple[FloatArray, FeedForwardTrace]:
    """The config's feed-forward layer.

    ``mlp``: down(act(up(x))) (Vaswani et al. 2017, eq. 2); ``gated``: down(act(gate(x)) * up(x)) (Shazeer
    2020, eq. 5).

    Args:
        config: the decoder's definition.
        parameters: ``up.weight`` (F, D), ``down.weight`` (D, F), when gated ``gate.weight`` (F, D), and
            their ``.bias`` (out,) where they have one.
        hidden: x, (..., D).

    Returns:
        (..., D), and the trace for :func:`feed_forward_backward`.

    Raises:
        InputError: the shapes do not fit each other.
    """
    up = _linear(parameters, "up", hidden)
    if config.feed_forward == "gated":
        gate = _linear(parameters, "gate", hidden)
        activated = activation_forward(config.activation, gate)
        combined = activated * up
    else:
        gate = None
        combined = activated = activation_forward(config.activation, up)
    output = _linear(parameters, "down", combined)
    return output, FeedForwardTrace(hidden, up, gate, activated, combined)


def feed_forward_backward(
    config: DecoderConfig, parameters: Mapping[str, FloatArray], grad: FloatArray, trace: FeedForwardTrace
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Gradients of :func:`feed_forward_forward`: with respect to the input, and to every parameter by name.

    With c the input of ``down`` and dc its gradient: ``mlp`` dup = dc act'(up); ``gated`` dup = dc act(gate)
    and dgate = dc up act'(gate).

    Raises:
        InputError: the gradient does not have the shape of the forward's result.
    """
    require_shape("grad", grad.shape, trace.hidden.shape)
    grad_combined, gradients = _linear_backward(parameters, "down", grad, trace.combined)
    if trace.gate is None:
        grad_up = activation_backward(config.activation, grad_combined, trace.up)
        grad_hidden, of_up = _linear_backward(parameters, "up", grad_up, trace.hidden)
        return grad_hidden, gradients | of_up
    grad_gate = activation_backward(config.activation, grad_combined * trace.up, trace.gate)
    through_up, of_up = _linear_backward(parameters, "up", grad_combined * trace.activated, trace.hidden)
    through_gate, of_gate = _linear_backward(parameters, "gate", grad_gate, trace.hidden)
    return through_up + through_gate, gradients | of_up | of_gate


def _linear(parameters: Mapping[str, FloatArray], name: str, inputs: FloatArray) -> FloatArray:
    return linear_forward(inputs, parameters[f"{name}.weight"], parameters.get(f"{name}.bias"))


def _linear_backward(
    parameters: Mapping[str, FloatArray], name: str, grad: FloatArray, inputs: FloatArray
) -> tuple[FloatArray, dict[str, FloatArray]]:
    grad_inputs, grad_weight, grad_bias = linear_backward(grad, inputs, parameters[f"{name}.weight"])
    gradients = {f"{name}.weight": grad_weight}
    if f"{name}.bias" in parameters:
        gradients[f"{name}.bias"] = grad_bias
    return grad_inputs, gradients
