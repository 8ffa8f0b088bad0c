"""LLMs-from-scratch (github.com/rasbt/LLMs-from-scratch): the book's GPT, its fast variant, and the one with a cache.

    proof-lm verify examples/peers/llms_from_scratch.py:build --arg path=~/LLMs-from-scratch
    proof-lm verify examples/peers/llms_from_scratch.py:build_fast --arg path=~/LLMs-from-scratch
    proof-lm verify examples/peers/llms_from_scratch.py:build_cached --arg path=~/LLMs-from-scratch

Only the one with a cache needs an adapter: the model counts the tokens that it has seen, so the count goes with the
cache.
"""

from typing import Any

from peer import peer, with_telling_weights
from torch import Tensor, nn

from proof_lm.verify import Adapter

REPOSITORY = "rasbt/LLMs-from-scratch"
CONFIG = {
    "vocab_size": 31,
    "context_length": 29,
    "emb_dim": 24,
    "n_heads": 3,
    "n_layers": 2,
    "drop_rate": 0.1,
    "qkv_bias": True,
}


def build(path: str | None = None) -> nn.Module:
    """``GPTModel`` of chapter 4."""
    return with_telling_weights(_module("ch04", path).GPTModel(CONFIG))


def build_fast(path: str | None = None) -> nn.Module:
    """``GPTModelFast`` of chapter 4, with PyTorch's attention and norms."""
    return with_telling_weights(_module("ch04", path).GPTModelFast(CONFIG))


class Cache:
    """The book's cache, and how many tokens it holds."""

    def __init__(self, held: Any) -> None:
        self.held, self.length = held, 0


class Cached(Adapter):
    vocab_size, context_length, n_heads = 31, 29, 3

    def __init__(self, module: nn.Module, cache: type) -> None:
        super().__init__(module)
        self.cache = cache

    def logits(self, module: Any, token_ids: Tensor, *, cache: Cache | None = None) -> Tensor:
        if cache is None:
            return module(token_ids)
        module.current_pos = cache.length
        try:
            logits = module(token_ids, use_cache=True, cache=cache.held)
            cache.length = module.current_pos
        finally:
            module.current_pos = 0
        return logits

    def new_cache(self, module: Any, n_rows: int, capacity: int) -> Cache:
        return Cache(self.cache(n_layers=len(module.trf_blocks)))


def build_cached(path: str | None = None) -> Cached:
    """``GPTModel`` of ``kv_cache``."""
    code = _module("kv_cache.gpt2", path)
    return Cached(with_telling_weights(code.GPTModel(CONFIG)), code.KVCache)


def _module(name: str, path: str | None) -> Any:
    return peer(f"llms_from_scratch.{name}", REPOSITORY, path, root="pkg")
