"""How a decoder that is not ours is called: by hand, or as its signature and its behaviour tell."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from proof_lm.config import DecoderConfig
from proof_lm.dims import Bool, Float, Int, Scalar, Tensor
from proof_lm.verify.subjects.subject import Finding


class Adapter:
    """How to call one kind of decoder. Subclass it where :func:`proof_lm.verify.subjects.discover` does not
    understand your model, override what the model can do, and give an instance wherever a model is expected.

    Every method takes the module to call, since measurements run on copies of the one that was given. What is
    not overridden the decoder cannot do, and :meth:`logits` takes the keywords of what it can::

        class Mine(Adapter):
            vocab_size, context_length = 50257, 1024

            def logits(self, module, token_ids, *, padding_mask=None):
                return module(token_ids, visible=padding_mask)["scores"]

    Attributes:
        module: the decoder as it was given.
        vocab_size: token ids lie in [0, vocab_size), and the logits have that many.
        context_length: the most tokens of a row.
        n_heads: query heads, which some batch sizes are made equal to; None where unknown.
        window: the sliding window that it has; None where every query sees its whole past.
        config: its definition in our terms, which contracts on configuration need; None where there is none.
        strict: whether even NaN behind a mask must reach nothing, and the loss of no labels must be 0.
        shifts_labels: whether :meth:`loss` cannot count a label of the last position.
        masks_loss: whether :meth:`loss` can leave positions out.
        positions_follow_mask: whether it is declared that the decoder counts positions by its mask; then nobody
            gives them beside one.
        findings: what reports shall say of how it is called.
    """

    vocab_size: int
    context_length: int
    n_heads: int | None = None
    window: int | None = None
    config: DecoderConfig | None = None
    strict: bool = False
    shifts_labels: bool = False
    masks_loss: bool = True
    positions_follow_mask: bool = False

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.findings: list[Finding] = []

    def logits(
        self,
        module: nn.Module,
        token_ids: Int[Tensor, "B T"],
        *,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        position_ids: Int[Tensor, "B T"] | None = None,
        cache: Any = None,
    ) -> Float[Tensor, "B T V"]:
        """The logits (B, T, V). ``padding_mask`` is True for real tokens; ``cache`` is what :meth:`new_cache` made."""
        raise NotImplementedError

    def loss(
        self,
        module: nn.Module,
        token_ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        loss_mask: Bool[Tensor, "B T"] | None,
    ) -> Scalar:
        """The loss, where ``labels[b, t]`` is the target of position t and counts where the mask is True."""
        raise NotImplementedError

    def new_cache(self, module: nn.Module, n_rows: int, capacity: int) -> Any:
        """An empty cache; ``logits(..., cache=it)`` continues and extends it in place."""
        raise NotImplementedError

    def generate(
        self, module: nn.Module, token_ids: Int[Tensor, "B T"], max_new_tokens: int, **settings: Any
    ) -> Int[Tensor, "B U"]:
        """Prompts and continuation. Settings: ``temperature`` (0 is greedy), ``top_k``, ``top_p``, ``seed``,
        ``stop_ids``, ``padding_mask``."""
        raise NotImplementedError

    def overrides(self, method: str) -> bool:
        """Whether the adapter says how that is done."""
        return getattr(type(self), method) is not getattr(Adapter, method)

    def takes(self, keyword: str) -> bool:
        """Whether :meth:`logits` has that keyword."""
        return keyword in inspect.signature(self.logits).parameters
