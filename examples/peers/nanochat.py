"""nanochat (github.com/karpathy/nanochat), with its cache.

    proof-lm verify examples/peers/nanochat.py:build --arg path=~/nanochat

Needs an adapter: with targets it returns the loss alone, a row of one token is refused without a cache, and the
cache is an object that the caller makes.
"""

from typing import Any

from peer import peer, with_telling_weights
from torch import Tensor, nn

from proof_lm.verify import Adapter

REPOSITORY = "karpathy/nanochat"
IGNORED = -1  # the label that its loss does not count


class NanoChat(Adapter):
    vocab_size, context_length, n_heads = 31, 29, 6

    def __init__(self, module: nn.Module, cache: type) -> None:
        super().__init__(module)
        self.cache = cache

    def logits(self, module: nn.Module, token_ids: Tensor, *, cache: Any = None) -> Tensor:
        if cache is None and token_ids.shape[1] == 1:
            cache = self.new_cache(module, len(token_ids), 1)  # as its engine does
        return module(token_ids, kv_cache=cache)

    def loss(self, module: nn.Module, token_ids: Tensor, labels: Tensor, loss_mask: Tensor | None) -> Tensor:
        if loss_mask is not None:
            labels = labels.masked_fill(~loss_mask, IGNORED)
        return module(token_ids, labels)

    def new_cache(self, module: Any, n_rows: int, capacity: int) -> Any:
        config = module.config
        return self.cache(
            batch_size=n_rows,
            num_heads=config.n_kv_head,
            seq_len=capacity,
            head_dim=config.n_embd // config.n_head,
            num_layers=config.n_layer,
            device="cpu",
            dtype=module.cos.dtype,
        )


def build(path: str | None = None, *, window: int | None = 6) -> NanoChat:
    """``window``: keys before its own that a token sees in the first layer, which a config makes 128 at least."""
    code = peer("nanochat.gpt", REPOSITORY, path)
    cache = peer("nanochat.engine", REPOSITORY, path).KVCache
    config = code.GPTConfig(sequence_len=29, vocab_size=31, n_layer=3, n_head=6, n_kv_head=2, n_embd=48)
    model = code.GPT(
        config, pad_vocab_size_to=1
    )  # else the embedding's rows are not the tokens, and it is not found
    model.init_weights()
    if window is not None:
        model.window_sizes[0] = (window, 0)
    return NanoChat(with_telling_weights(model), cache)
