"""The two forms of the feed-forward layer."""

from torch import nn

from proof_lm import functional
from proof_lm.config import DecoderConfig
from proof_lm.dims import Hidden
from proof_lm.model.linear import Linear


class MLP(nn.Module):
    """down(act(up(x)))."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        bias = config.feed_forward_bias
        self.activation = config.activation
        self.up = Linear(config.d_model, config.d_ff, bias=bias)
        self.down = Linear(config.d_ff, config.d_model, bias=bias)

    def forward(self, hidden: Hidden) -> Hidden:
        return functional.mlp(hidden, self.up.affine(), self.down.affine(), self.activation)


class GatedMLP(nn.Module):
    """down(act(gate(x)) * up(x)): SwiGLU when the activation is SiLU."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        bias = config.feed_forward_bias
        self.activation = config.activation
        self.gate = Linear(config.d_model, config.d_ff, bias=bias)
        self.up = Linear(config.d_model, config.d_ff, bias=bias)
        self.down = Linear(config.d_ff, config.d_model, bias=bias)

    def forward(self, hidden: Hidden) -> Hidden:
        return functional.gated_mlp(
            hidden, self.gate.affine(), self.up.affine(), self.down.affine(), self.activation
        )


def build_feed_forward(config: DecoderConfig) -> MLP | GatedMLP:
    """The feed-forward layer that the config names."""
    return MLP(config) if config.feed_forward == "mlp" else GatedMLP(config)
