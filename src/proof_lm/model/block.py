"""One pre-norm layer."""

from torch import nn

from proof_lm.config import DecoderConfig
from proof_lm.dims import Hidden
from proof_lm.functional import dropout
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.model.cache import CacheLayer
from proof_lm.model.feed_forward import build_feed_forward
from proof_lm.model.norm import build_norm


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)).

    Source: Xiong et al. 2020, the pre-norm form.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.attention_norm = build_norm(config)
        self.attention = Attention(config)
        self.feed_forward_norm = build_norm(config)
        self.feed_forward = build_feed_forward(config)

    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        probability = self.dropout if self.training else 0.0
        attended = self.attention(self.attention_norm(hidden), context, cache)
        hidden = hidden + dropout(attended, probability)
        fed = self.feed_forward(self.feed_forward_norm(hidden))
        return hidden + dropout(fed, probability)
