"""Faults of the residual path."""

from collections.abc import Callable

from proof_lm.dims import Hidden
from proof_lm.model import ProofLM
from proof_lm.model.attention import AttentionContext
from proof_lm.model.block import Block
from proof_lm.model.cache import CacheLayer
from proof_lm.verify.mutants.mutant import Mutant, become


class AfterNorm(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        hidden = self.attention_norm(hidden)
        hidden = hidden + self.attention(hidden, context, cache)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


class SecondSkipFromInput(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        middle = hidden + self.attention(self.attention_norm(hidden), context, cache)
        return hidden + self.feed_forward(self.feed_forward_norm(middle))


class NoFirstSkip(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        middle = self.attention(self.attention_norm(hidden), context, cache)
        return middle + self.feed_forward(self.feed_forward_norm(middle))


class Parallel(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        attended = self.attention(self.attention_norm(hidden), context, cache)
        return hidden + attended + self.feed_forward(self.feed_forward_norm(hidden))


class PostNorm(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        hidden = self.attention_norm(hidden + self.attention(hidden, context, cache))
        return self.feed_forward_norm(hidden + self.feed_forward(hidden))


class DetachedResidual(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        attended = self.attention(self.attention_norm(hidden), context, cache)
        hidden = hidden.detach() + attended
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


class DetachedSkips(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        hidden = hidden.detach() + self.attention(self.attention_norm(hidden), context, cache)
        return hidden.detach() + self.feed_forward(self.feed_forward_norm(hidden))


def _blocks(kind: type[Block]) -> Callable[[ProofLM], None]:
    return lambda model: become(model.blocks, kind)


MUTANTS = (
    Mutant(
        "residual-after-norm",
        "The skip path carries the normalized values.",
        ("residual-path", "oracle-logits"),
        _blocks(AfterNorm),
        source="pytorch/pytorch#61165",
        ids=("O57", "cs336:residual_from_norm"),
    ),
    Mutant(
        "second-skip-from-input",
        "The feed-forward branch is added to the block's input, so attention is lost.",
        ("residual-path", "oracle-logits"),
        _blocks(SecondSkipFromInput),
        source="strutive07/transformer-tensorflow2.0#14",
        ids=("O58",),
    ),
    Mutant(
        "no-first-skip",
        "Attention replaces its input.",
        ("residual-path", "skip-path"),
        _blocks(NoFirstSkip),
        ids=("cs336:no_residual1",),
    ),
    Mutant(
        "parallel-branches",
        "Both branches read the block's input.",
        ("residual-path",),
        _blocks(Parallel),
        ids=("cs336:parallel_block",),
    ),
    Mutant(
        "post-norm",
        "Norms follow the additions.",
        ("residual-path", "oracle-logits"),
        _blocks(PostNorm),
        ids=("cs336:post_norm",),
    ),
    Mutant(
        "residual-detached",
        "No gradient runs through the skip path of attention.",
        ("residual-path", "oracle-gradients", "upstream-gradients"),
        _blocks(DetachedResidual),
        ids=("cs336:residual_detach",),
    ),
    Mutant(
        "skips-detached",
        "No gradient runs through either skip path.",
        ("oracle-gradients", "upstream-gradients"),
        _blocks(DetachedSkips),
    ),
)
