"""x-transformers (github.com/lucidrains/x-transformers): a rotary decoder with grouped heads, its mask and its cache.

    proof-lm verify examples/peers/x_transformers.py:build --arg path=~/x-transformers

Needs an adapter: the cache comes back only when it is asked for, calls that continue one must say that their tokens
are new, and beside it padding is told by where each row begins, not by a mask.
"""

from typing import Any

from peer import peer, with_telling_weights
from torch import Tensor, nn

from proof_lm.verify import Adapter


class Cache:
    """What the last call gave back, and how many pads each row begins with."""

    def __init__(self) -> None:
        self.held: Any = None
        self.pads: Tensor | int = 0


class XTransformer(Adapter):
    vocab_size, context_length, n_heads = 31, 29, 6

    def logits(
        self,
        module: nn.Module,
        token_ids: Tensor,
        *,
        padding_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        if cache is None:
            places = None if padding_mask is None else (padding_mask.long().cumsum(1) - 1).clamp(min=0)
            return module(token_ids, mask=padding_mask, pos=places)
        if padding_mask is not None:
            cache.pads = cache.pads + (~padding_mask).sum(1)
        logits, cache.held = module(
            token_ids,
            seq_start_pos=cache.pads if isinstance(cache.pads, Tensor) else None,
            cache=cache.held,
            cache_age=token_ids.shape[1],
            input_not_include_cache=True,
            return_intermediates=True,
        )
        return logits

    def new_cache(self, module: nn.Module, n_rows: int, capacity: int) -> Cache:
        return Cache()


def build(path: str | None = None, *, flash: bool = False) -> XTransformer:
    """``flash=True`` takes PyTorch's fused attention."""
    code = peer("x_transformers", "lucidrains/x-transformers", path)
    model = code.TransformerWrapper(
        num_tokens=31,
        max_seq_len=29,
        use_abs_pos_emb=False,
        attn_layers=code.Decoder(
            dim=24,
            depth=2,
            heads=6,
            attn_dim_head=8,
            attn_kv_heads=2,
            rotary_pos_emb=True,
            ff_glu=True,
            ff_swish=True,
            use_rmsnorm=True,
            attn_flash=flash,
        ),
    )
    return XTransformer(with_telling_weights(model))
