"""gpt-fast (github.com/meta-pytorch/gpt-fast), with its cache.

    proof-lm verify examples/peers/gpt_fast.py:build --arg path=~/gpt-fast

Needs an adapter: a call takes a block mask, the tokens and their positions, and the cache is kept inside the model.
Its attention is PyTorch's flex_attention, which has no backward pass on a CPU.
"""

from typing import Any

import torch
from peer import peer, with_telling_weights
from torch import Tensor
from torch.nn.attention import flex_attention

from proof_lm.verify import Adapter


class Cache:
    """The buffers of one batch, a pair a layer, and how many of their slots are filled."""

    def __init__(self, layers: list[Any], capacity: int) -> None:
        self.layers, self.capacity, self.length = layers, capacity, 0


def _causal(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


class GPTFast(Adapter):
    vocab_size, context_length, n_heads = 31, 29, 6

    def logits(self, module: Any, token_ids: Tensor, *, cache: Cache | None = None) -> Tensor:
        n_tokens = token_ids.shape[1]
        start, n_keys = (0, n_tokens) if cache is None else (cache.length, cache.capacity)
        mask = flex_attention.create_block_mask(_causal, 1, 1, n_tokens, n_keys, device="cpu")
        _put(module, [None] * len(module.layers) if cache is None else cache.layers)
        try:
            logits = module(mask, token_ids, torch.arange(start, start + n_tokens))
        finally:
            _put(module, [None] * len(module.layers))
        if cache is not None:
            cache.length += n_tokens
        return logits

    def new_cache(self, module: Any, n_rows: int, capacity: int) -> Cache:
        return _set_up(module, n_rows, capacity)


def _put(module: Any, caches: list[Any]) -> None:
    for layer, cache in zip(module.layers, caches, strict=True):
        layer.attention.kv_cache = cache


def _set_up(module: Any, n_rows: int, capacity: int) -> Cache:
    """Its buffers and rotations, as it makes them itself; the buffers are taken out of the model."""
    module.max_batch_size = module.max_seq_length = -1  # else a smaller cache than before is not made
    module.setup_caches(n_rows, capacity)
    layers = [layer.attention.kv_cache for layer in module.layers]
    _put(module, [None] * len(layers))
    return Cache(layers, module.max_seq_length)


def build(path: str | None = None) -> GPTFast:
    """A small model with three query heads a KV head."""
    code = peer("model.py", "meta-pytorch/gpt-fast", path)
    # else PyTorch compiles each call of its attention by itself, and gives up after a few shapes
    flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    config = code.ModelArgs(
        block_size=29, vocab_size=31, n_layer=2, n_head=6, n_local_heads=2, dim=48, intermediate_size=37
    )
    model = with_telling_weights(code.Transformer(config))
    _set_up(model, 1, config.block_size)
    return GPTFast(model)
