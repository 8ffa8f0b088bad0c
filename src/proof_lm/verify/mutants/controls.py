"""Sound decoders that look wrong: each was reported as a bug and turned out right. No contract may reject them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from proof_lm import functional
from proof_lm.config import DecoderConfig
from proof_lm.dims import (
    Bool,
    Float,
    Hidden,
    Keys,
    PositionIds,
    Queries,
    Scalar,
    Tensor,
    TokenIds,
    TokenMask,
    Values,
)
from proof_lm.functional import cross_entropy
from proof_lm.model import KVCache, ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.model.norm import RMSNorm
from proof_lm.verify.mutants.mutant import BASE, attentions, become, in_attention, in_decoder, norms
from proof_lm.verify.mutants.parts import expanded, rotation_at, scores_of, triangle
from proof_lm.verify.mutants.rope import Altered
from proof_lm.verify.randomize import randomized
from proof_lm.verify.subjects import Capability, ProofSubject, Subject


@dataclass(frozen=True)
class Control:
    """A sound decoder that was taken for a faulty one.

    Attributes:
        id: its entry in the list of public reports.
        name: short, in words joined by hyphens.
        what: why it is sound, in one sentence.
        build: makes the subject, from a seed.
        source: the report, as owner/name#number.
    """

    id: str
    name: str
    what: str
    build: Callable[[int], Subject]
    source: str


class NormalizesRotated(Attention):
    """Queries and keys of unit rms, normalized after the rotation, which keeps the rms."""

    def rotate(self, queries: Queries, keys: Keys, context: AttentionContext) -> tuple[Queries, Keys]:
        queries, keys = super().rotate(queries, keys, context)
        return _unit(queries), _unit(keys)


class NormalizesTwice(RMSNorm):
    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        return super().forward(_unit(inputs))


class ScaledByValueWidth(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        ratio = (queries.shape[-1] / values.shape[-1]) ** 0.5
        return super().attend(queries * ratio, keys, values, context)


class OtherProductsWhenDecoding(Attention):
    """A single query is computed by sums in another order, so its last bits differ."""

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if queries.shape[2] > 1:
            return super().attend(queries, keys, values, context)
        visible = triangle(queries, keys, context)
        keys, values = expanded(queries, keys, values)
        scores = (queries * keys).flip(-1).sum(-1)[:, :, None] / queries.shape[-1] ** 0.5
        weights = functional.softmax(scores, visible=visible)
        return (weights.mT * values).flip(2).sum(2, keepdim=True)


class ShiftsInTheHelper(ProofLM):
    def loss(self, logits: Tensor, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        unshifted = torch.cat([labels[:, :1], labels], 1)
        counted = None if mask is None else torch.cat([mask[:, :1], mask], 1)
        padded = torch.cat([logits, logits[:, -1:]], 1)
        return _shifted(padded, unshifted, counted)


class ModuloHeads(Attention):
    """Query head h reads KV head h mod K; the rows are stored for that."""

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        group = queries.shape[1] // keys.shape[1]
        return super().attend(queries, keys.repeat(1, group, 1, 1), values.repeat(1, group, 1, 1), context)


class AtLowerRight(Attention):
    """PyTorch's bias that is anchored at the lower right, unlike its causal flag."""

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if context.mask is not None or self.training or queries.shape[2] == 1:
            return super().attend(queries, keys, values, context)
        from torch.nn.attention.bias import causal_lower_right  # loads PyTorch's compiler: seconds

        bias = causal_lower_right(queries.shape[2], keys.shape[2])
        return scaled_dot_product_attention(queries, *expanded(queries, keys, values), attn_mask=bias)


class ViewThenTranspose(Attention):
    def split_heads(self, rows: Float[Tensor, "B T X"]) -> Float[Tensor, "B X1 T H"]:
        batch, n_tokens, width = rows.shape
        return rows.view(batch, n_tokens, width // self.head_dim, self.head_dim).transpose(1, 2)


@dataclass(frozen=True)
class KeyPositions(AttentionContext):
    """Also where the keys stand, (B, S)."""

    keys_at: Tensor | None = None


class BiasedByKey(Attention):
    """ALiBi from absolute positions of keys: a constant away, in every row, from that of distances."""

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        assert isinstance(context, KeyPositions)
        assert context.keys_at is not None
        slopes = 2.0 ** -torch.arange(1.0, queries.shape[1] + 1.0, dtype=queries.dtype)
        bias = slopes[None, :, None, None] * context.keys_at[:, None, None, :]
        visible = triangle(queries, keys, context)
        if context.window is not None:
            visible = visible.triu(keys.shape[2] - queries.shape[2] - context.window + 1)
        keys, values = expanded(queries, keys, values)
        weights = functional.softmax(scores_of(queries, keys) + bias, visible=visible)
        return functional.dropout(weights, self.dropout if self.training else 0.0) @ values


class KnowsKeyPositions(ProofLM):
    """Hands the keys' positions to the layers."""

    cache: KVCache | None = None

    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        self.cache = options.get("cache")
        try:
            return super().hidden_states(token_ids, **options)
        finally:
            self.cache = None

    def context(self, positions: PositionIds, visible: Bool[Tensor, "B S"] | None) -> AttentionContext:
        sound = super().context(positions, visible)
        end = 0 if self.cache is None else self.cache.length + positions.shape[1]
        keys_at = positions if self.cache is None else self.cache.positions[:, :end]
        return KeyPositions(
            sound.backend, sound.mask, sound.rotation, sound.window, keys_at.to(self.embedding.weight.dtype)
        )


class OneDocumentAtATime(ProofLM):
    """Packed rows are taken apart, so no mask isolates anything."""

    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        documents, mask = options.get("document_ids"), options.get("padding_mask")
        if documents is None or self.training:
            return super().hidden_states(token_ids, **options)
        real = torch.ones_like(documents, dtype=torch.bool) if mask is None else mask == 1
        hidden = torch.zeros(*token_ids.shape, self.config.d_model, dtype=self.embedding.weight.dtype)
        for row in range(len(token_ids)):
            for document in documents[row].unique():
                own = (documents[row] == document) & real[row]
                if own.any():
                    alone = super().hidden_states(token_ids[row, own][None])
                    hidden[row, own] = alone[0]
        return hidden


class StartsAtOne(Altered):
    """Rotary positions that count from 1: only distances enter."""

    def alter(self, rotation: functional.Rotation, positions: PositionIds) -> functional.Rotation:
        return rotation_at(self, positions + 1)


class Restored(ProofSubject):
    """A decoder whose rows are stored in another order, which its map puts right; its layers have that order too."""

    restore: Callable[[str, Tensor], Tensor]

    def to_oracle(self, tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
        """In the declared order."""
        return {
            name: None if tensor is None else self.restore(name, tensor) for name, tensor in tensors.items()
        }


def _unit(vectors: Tensor) -> Tensor:
    return vectors * (vectors.square().mean(-1, keepdim=True) + 1e-12).rsqrt()


def _shifted(logits: Tensor, labels: TokenIds, mask: TokenMask | None) -> Scalar:
    """The loss of labels that are the tokens themselves."""
    return cross_entropy(logits[:, :-1], labels[:, 1:], None if mask is None else mask[:, 1:])


def _sound(plant: Callable[[ProofLM], None], config: DecoderConfig = BASE) -> Callable[[int], Subject]:
    """As declared in everything."""

    def build(seed: int) -> Subject:
        model = randomized(config, seed)
        plant(model)
        return _not_remade(ProofSubject("control", model))

    return build


def _undeclared(plant: Callable[[ProofLM], None], config: DecoderConfig = BASE) -> Callable[[int], Subject]:
    """Sound, but not the decoder that the config declares: judged from outside."""

    def build(seed: int) -> Subject:
        subject = _sound(plant, config)(seed)
        lacking: tuple[Capability, ...] = ("config", "weights", "parts", "rope")
        subject.absent |= dict.fromkeys(lacking, "no config describes it")
        subject.declared = None
        return subject

    return build


def _stored_otherwise(
    built: DecoderConfig, plant: Callable[[ProofLM], None], restore: Callable[[str, Tensor], Tensor]
) -> Callable[[int], Subject]:
    """``BASE`` in everything, but for the order in which its heads' rows are stored."""

    def build(seed: int) -> Subject:
        model = randomized(built, seed)
        plant(model)
        subject = Restored("control", model)
        subject.declared, subject.restore = BASE, restore
        subject.absent["parts"] = "its layers are stored in another order"
        return _not_remade(subject)

    return build


def _not_remade(subject: ProofSubject) -> ProofSubject:
    """What is planted in a model is not in a new one, nor in one from a file."""
    lacking: tuple[Capability, ...] = ("construction", "storage")
    subject.absent |= dict.fromkeys(lacking, "a new one would be an ordinary decoder")
    return subject


def _heads_in_order(name: str, tensor: Tensor) -> Tensor:
    """Head h of a decoder that reads h mod K, put where floor(h / G) reads the same."""
    n_heads, n_kv_heads, head_dim = BASE.n_heads, BASE.kv_heads, BASE.head_width
    slots = torch.arange(n_heads).view(-1, n_kv_heads).T.flatten()
    rows = (slots[:, None] * head_dim + torch.arange(head_dim)).flatten()
    if name.endswith("attention.out.weight"):
        return tensor[:, rows]
    return tensor[rows] if ".attention.query." in name else tensor


def _pairs_side_by_side(name: str, tensor: Tensor) -> Tensor:
    """Dimensions i and i + H/2 of every head, put at 2i and 2i + 1."""
    if ".attention.query." not in name and ".attention.key." not in name:
        return tensor
    head_dim = BASE.head_width
    order = torch.arange(head_dim).view(2, -1).T.flatten()
    return tensor.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)


def _twice_normalized(model: ProofLM) -> None:
    become(norms(model), NormalizesTwice)


def _biased_by_key(model: ProofLM) -> None:
    become(attentions(model), BiasedByKey)
    become([model], KnowsKeyPositions)


def _as_it_is(model: ProofLM) -> None:
    """No change at all."""


CONTROLS: tuple[Control, ...] = (
    Control(
        "N01",
        "normalized-after-rotation",
        "A rotation keeps the rms, so queries and keys may be normalized after it where there is no gain.",
        _undeclared(in_attention(NormalizesRotated)),
        "karpathy/nanochat#743",
    ),
    Control(
        "N02",
        "normalized-twice",
        "RMSNorm of what has an rms of 1 changes nothing but by eps: a waste, no fault.",
        _undeclared(_twice_normalized, BASE.with_(norm="rmsnorm")),
        "ggml-org/llama.cpp#1925",
    ),
    Control(
        "N03",
        "scaled-by-value-width",
        "The width of values is that of keys.",
        _sound(in_attention(ScaledByValueWidth)),
        "openai/gpt-2#49",
    ),
    Control(
        "N04",
        "other-products-when-decoding",
        "Sums in another order differ in their last bits only.",
        _sound(in_attention(OtherProductsWhenDecoding)),
        "huggingface/transformers#25420",
    ),
    Control(
        "N05",
        "shift-in-the-helper",
        "The shift has moved to where the loss is computed.",
        _sound(in_decoder(ShiftsInTheHelper)),
        "huggingface/transformers#35066",
    ),
    Control(
        "N07",
        "heads-by-modulo",
        "Heads are read modulo, and stored for that.",
        _stored_otherwise(BASE, in_attention(ModuloHeads), _heads_in_order),
        "ggml-org/llama.cpp#25315",
    ),
    Control(
        "N08",
        "half-split-pairs",
        "The other layout of pairs, with rows permuted to match.",
        _stored_otherwise(BASE.with_(rope_layout="half"), _as_it_is, _pairs_side_by_side),
        "huggingface/transformers#25199",
    ),
    Control(
        "N09",
        "bias-at-lower-right",
        "The causal triangle is anchored at the lower right, as decoding needs.",
        _sound(in_attention(AtLowerRight)),
        "ml-explore/mlx#2836",
    ),
    Control(
        "N10",
        "view-then-transpose",
        "Heads are split by a view and a transpose, which is right.",
        _sound(in_attention(ViewThenTranspose)),
        "jadore801120/attention-is-all-you-need-pytorch#177",
    ),
    Control(
        "N11",
        "alibi-by-key",
        "A bias from the keys' absolute positions is that of distances, up to a constant in each row.",
        _undeclared(_biased_by_key, BASE.with_(position="none")),
        "lucidrains/x-transformers#153",
    ),
    Control(
        "N12",
        "documents-one-at-a-time",
        "Documents are isolated without any mask to read that off.",
        _sound(in_decoder(OneDocumentAtATime)),
        "mosaicml/llm-foundry#1464",
    ),
    Control(
        "cs336:rope_off_by_one",
        "rope-from-one",
        "Rotary positions that count from 1 have the same distances.",
        _sound(in_decoder(StartsAtOne)),
        "",
    ),
)
