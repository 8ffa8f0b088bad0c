"""LitGPT (github.com/Lightning-AI/litgpt), with its cache.

    proof-lm verify examples/peers/litgpt.py:build --arg path=~/litgpt

Needs an adapter for the cache only: LitGPT keeps it inside the model, so it is put in for a call and taken out
after it.
"""

from typing import Any

import torch
from peer import peer, with_telling_weights
from torch import Tensor, nn

from proof_lm.verify import Adapter

REPOSITORY = "Lightning-AI/litgpt"


class Cache:
    """What LitGPT holds for one batch: a buffer a block, and which keys each position sees."""

    def __init__(self, blocks: list[Any], mask: Tensor) -> None:
        self.blocks, self.mask, self.length = blocks, mask, 0


class LitGPT(Adapter):
    vocab_size, context_length, n_heads = 37, 29, 6

    def logits(self, module: Any, token_ids: Tensor, *, cache: Cache | None = None) -> Tensor:
        if cache is None:
            return module(token_ids)
        end = cache.length + token_ids.shape[1]
        module.mask_cache = cache.mask
        for block, kept in zip(module.transformer.h, cache.blocks, strict=True):
            block.attn.kv_cache = kept
        try:
            logits = module(token_ids, torch.arange(cache.length, end), input_pos_maxp1=end)
        finally:
            module.clear_kv_cache()
        cache.length = end
        return logits

    def new_cache(self, module: Any, n_rows: int, capacity: int) -> Cache:
        module.set_kv_cache(n_rows, capacity)
        cache = Cache([block.attn.kv_cache for block in module.transformer.h], module.mask_cache)
        module.clear_kv_cache()
        return cache


def build(path: str | None = None, **changes: Any) -> LitGPT:
    """``changes`` are fields of its config, such as ``--arg parallel_residual=True``."""
    code = peer("litgpt.model", REPOSITORY, path)
    fields = {
        "block_size": 29,
        "vocab_size": 35,
        "padded_vocab_size": 37,
        "n_layer": 2,
        "n_head": 6,
        "n_query_groups": 3,
        "n_embd": 24,
        "head_size": 8,
        "intermediate_size": 34,
        "norm_class_name": "RMSNorm",
        "mlp_class_name": "LLaMAMLP",
        "rotary_percentage": 1.0,
        "parallel_residual": False,
        "bias": False,
    }
    model: nn.Module = code.GPT(code.Config(**fields | changes))
    return LitGPT(with_telling_weights(model))
