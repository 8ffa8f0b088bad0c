"""The decoder: embedding, blocks, final norm, head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from proof_lm.config import DecoderConfig
from proof_lm.dims import Bool, Float, Hidden, Int, Logits, PositionIds, Scalar, Tensor, TokenIds, TokenMask
from proof_lm.errors import CacheError
from proof_lm.functional import AttentionBackend, cross_entropy, dropout, linear, rope_rotation
from proof_lm.generate import generate
from proof_lm.model import inputs
from proof_lm.model.attention import AttentionContext
from proof_lm.model.block import Block
from proof_lm.model.cache import KVCache
from proof_lm.model.documents import document_positions
from proof_lm.model.embedding import Embedding
from proof_lm.model.init import initialize
from proof_lm.model.linear import Linear
from proof_lm.model.norm import build_norm
from proof_lm.model.parameter_groups import parameter_groups


class ProofLM(nn.Module):
    """A decoder-only Transformer language model.

    ``model(token_ids)`` gives ``(logits, None)`` and ``model(token_ids, labels)`` gives ``(logits, loss)``,
    where ``labels[b, t]`` is the target of position t: nothing is shifted inside.

    A tied model has no head of its own (``head`` is None): it multiplies by the embedding matrix, so that no
    copy, cast or load can part the two. The model holds parameters only, no buffers and no state.

    Args:
        config: the definition of the decoder.
        attention_backend: ``"fused"`` (PyTorch's kernel) or ``"explicit"`` (the specification); may be
            changed at any time.
    """

    def __init__(self, config: DecoderConfig, *, attention_backend: AttentionBackend = "fused") -> None:
        super().__init__()
        self.config = config
        self.attention_backend = attention_backend
        self.embedding = Embedding(config.vocab_size, config.d_model)
        self.position_embedding = (
            Embedding(config.context_length, config.d_model) if config.position == "learned" else None
        )
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.final_norm = build_norm(config)
        head = Linear(
            config.d_model, config.vocab_size, bias=False
        )  # drawn even when tied: seeds stay comparable
        self.head = None if config.tie_embeddings else head
        initialize(self)

    def forward(
        self,
        token_ids: TokenIds,
        labels: TokenIds | None = None,
        loss_mask: Tensor | None = None,
        *,
        padding_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> tuple[Logits, Scalar | None]:
        """Logits for the token after each position, and the loss where labels are given.

        Args:
            token_ids: (B, T), in [0, V).
            labels: (B, T), the target of each position.
            loss_mask: (B, T), True (or 1) where a label counts; elsewhere it may be anything.
            padding_mask: (B, T), True (or 1) for real tokens. Padding, on either side, is seen by nobody,
                and the positions of a row count its real tokens only. Logits at padding mean nothing.
            position_ids: (T,) or (B, T); by default 0, 1, ..., continued from the cache, or from 0 in every
                document.
            document_ids: (B, T), integers, for rows that hold several documents: tokens see their own document
                only, so each gets the logits that it has alone. A document is one run of equal ids; ids at
                padding mean nothing. Not with a cache. The label of a document's last token is the caller's
                to choose, or to leave out by ``loss_mask``.
            cache: continues the tokens in it, and holds these too afterwards. Under ``torch.no_grad()``.

        Returns:
            Logits (B, T, V), and the mean loss in nats over counted positions, or None without labels.

        Raises:
            InputError: shape, dtype or value out of range, with the first offending place.
            CacheError: the cache does not fit.
        """
        mask = inputs.check_loss(self.config, token_ids, labels, loss_mask)
        hidden = self.hidden_states(
            token_ids,
            padding_mask=padding_mask,
            position_ids=position_ids,
            document_ids=document_ids,
            cache=cache,
        )
        logits = self.logits(hidden)
        return logits, None if labels is None else self.loss(logits, labels, mask)

    def hidden_states(
        self,
        token_ids: TokenIds,
        *,
        padding_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Hidden:
        """The normalized output of the last block, (B, T, D): what the head is applied to."""
        start = 0 if cache is None else cache.length
        inputs.check_tokens(self.config, token_ids, start)
        batch, n_tokens = token_ids.shape
        if cache is not None:
            cache.check(self.config, self.embedding.weight.dtype, batch, n_tokens)
        real = inputs.token_mask("padding_mask", padding_mask, token_ids)
        if document_ids is not None:
            document_ids = inputs.check_documents(document_ids, token_ids, real, cached=cache is not None)
            position_ids = document_positions(document_ids, real) if position_ids is None else position_ids
        positions = self.positions(token_ids, real, position_ids, cache)
        visible = real if cache is None else cache.stage(positions, real)

        hidden = self.embed(token_ids, positions, real)
        context = self.context(positions, visible)
        if document_ids is not None:
            context = context.within(document_ids)
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, context, None if cache is None else cache.layer(index))
        if cache is not None:
            cache.advance(n_tokens)
        return self.final_norm(hidden)

    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        """What enters the first block: token plus (learned) position vectors, and zeros at padding."""
        hidden: Tensor = self.embedding(token_ids)
        if self.position_embedding is not None:
            hidden = hidden + self.position_embedding(positions)
        if real is not None:
            hidden = hidden.masked_fill(~real[..., None], 0.0)
        return dropout(hidden, self.config.dropout if self.training else 0.0)

    def context(self, positions: PositionIds, visible: Bool[Tensor, "B S"] | None) -> AttentionContext:
        """What every layer of a pass at these positions shares; ``visible`` is None when no key is padding."""
        rotation = None
        if self.config.position == "rope":
            rotation = rope_rotation(
                positions,
                self.config.head_width,
                self.config.rope_theta,
                self.config.rope_layout,
                self.embedding.weight.dtype,
            )
        mask = None if visible is None else visible[:, None, None, :]
        return AttentionContext(self.attention_backend, mask, rotation, self.config.sliding_window)

    def logits(self, hidden: Hidden) -> Logits:
        """The head: hidden states times the (tied or own) head matrix."""
        return linear(hidden, self.head_weight)

    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        """The mean of -log p(label) over counted positions, in nats."""
        return cross_entropy(logits, labels, mask)

    @property
    def head_weight(self) -> Float[Tensor, "V D"]:
        """The matrix that makes logits: the embedding when tied."""
        return self.embedding.weight if self.head is None else self.head.weight

    @property
    def parameter_count(self) -> int:
        """Elements of all parameters, each tensor counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Matrices, which decay, and gains and biases, which do not; see :mod:`proof_lm.model.parameter_groups`."""
        return parameter_groups(self, weight_decay)

    @property
    def embeddings_are_tied(self) -> bool:
        """Whether head and embedding are one tensor."""
        return self.head_weight is self.embedding.weight

    def new_cache(self, batch_size: int, capacity: int | None = None) -> KVCache:
        """An empty cache for this model, in its dtype and on its device; by default for the whole context.

        Raises:
            CacheError: the capacity exceeds the context.
        """
        if capacity is not None and capacity > self.config.context_length:
            raise CacheError(
                f"{capacity} tokens exceed context_length = {self.config.context_length}: shorten the prompt, or "
                "ask for fewer new tokens"
            )
        weight = self.embedding.weight
        return KVCache(self.config, batch_size, capacity, dtype=weight.dtype, device=weight.device)

    def next_logits(
        self, token_ids: TokenIds, *, cache: KVCache, padding_mask: Tensor | None = None
    ) -> Float[Tensor, "B V"]:
        """Logits for the token after the last position only: the head multiplies one row instead of T."""
        hidden = self.hidden_states(token_ids, padding_mask=padding_mask, cache=cache)
        return self.logits(hidden[:, -1:])[:, 0]

    def generate(
        self,
        token_ids: TokenIds,
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop_ids: Sequence[int] = (),
        padding_mask: Tensor | None = None,
    ) -> Int[Tensor, "B _"]:
        """The prompt and its continuation; see :func:`proof_lm.generate.generate`."""
        return generate(
            self,
            token_ids,
            max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop_ids=stop_ids,
            padding_mask=padding_mask,
        )

    def positions(
        self,
        token_ids: TokenIds,
        real: TokenMask | None,
        position_ids: Tensor | None,
        cache: KVCache | None,
    ) -> PositionIds:
        """The given positions, or a count of each row's real tokens that continues the cache."""
        if position_ids is not None:
            return inputs.check_positions(self.config, position_ids, token_ids)
        if real is not None:
            steps = (real.long().cumsum(1) - 1).clamp(min=0)
        else:
            steps = torch.arange(token_ids.shape[1], device=token_ids.device).expand_as(token_ids)
        if cache is None:
            return steps
        return inputs.check_positions(self.config, steps + cache.next_positions()[:, None], token_ids)
