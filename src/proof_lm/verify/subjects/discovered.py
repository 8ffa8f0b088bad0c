"""A decoder that is called as was found out; :mod:`proof_lm.verify.subjects.discover` fills it in."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from proof_lm.dims import Bool, Float, Int, Scalar, Tensor
from proof_lm.verify.subjects import calls
from proof_lm.verify.subjects.adapter import Adapter
from proof_lm.verify.subjects.caches import ForeignCache
from proof_lm.verify.subjects.calls import Returned
from proof_lm.verify.subjects.subject import Capability, Finding


class Discovered(Adapter):
    """A decoder that is called as its signature says and its behaviour confirms.

    Attributes:
        absent: what it cannot do, with the reason.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.absent: dict[Capability, str] = {}
        self.names, self.takes_any = calls.parameters_of(module)
        self.ids_by_name = calls.takes_ids_by_name(module)
        self.padding: str | None = None
        self.mask_form = calls.ONES
        self.positions: str | None = None
        self.labels: str | None = None
        self.loss_mask: str | None = None
        self.ignored: int | None = None
        self.cache: str | None = None
        self.can_crop = False
        self.mask_spans_cache = True
        self.needs_labels = False

    def takes(self, keyword: str) -> bool:
        """Whether :meth:`logits` can do something with that keyword."""
        found = {"padding_mask": self.padding, "position_ids": self.positions, "cache": self.cache}
        return found.get(keyword) is not None

    def overrides(self, method: str) -> bool:
        """Whether it was found out how that is done."""
        capability: dict[str, Capability] = {"loss": "loss", "new_cache": "cache", "generate": "generation"}
        return method == "logits" or capability[method] not in self.absent

    def call(self, module: nn.Module, token_ids: Int[Tensor, "B T"], **given: Any) -> Returned:
        """One call, whatever the module returns; with contiguous ids, which it may want to view."""
        token_ids = token_ids.contiguous()
        if self.needs_labels and self.labels is not None and self.labels not in given:
            given[self.labels] = token_ids
        if self.ids_by_name:
            return calls.read(module(**{self.names[0]: token_ids}, **given))
        return calls.read(module(token_ids, **given))

    def logits(
        self,
        module: nn.Module,
        token_ids: Int[Tensor, "B T"],
        *,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        position_ids: Int[Tensor, "B T"] | None = None,
        cache: ForeignCache | None = None,
    ) -> Float[Tensor, "B T V"]:
        """One call with the arguments under the module's own names.

        Where the module takes both a mask and position ids, it is called with the count of real tokens as
        position ids, since some leave that to the caller; not where it is declared that it counts itself.
        """
        given: dict[str, Any] = {}
        if cache is not None:
            padding_mask = cache.extend(token_ids, padding_mask)
            given |= cache.arguments()
        if padding_mask is not None and self.padding is not None:
            seen = padding_mask if self.mask_spans_cache else padding_mask[:, -token_ids.shape[1] :]
            mask = calls.encode_mask(seen, self.mask_form)
            if self.mask_form == calls.ADDITIVE:
                mask = mask.to(next(module.parameters()).dtype)
            given[self.padding] = mask
            if position_ids is None and self.positions is not None and not self.positions_follow_mask:
                counted = (padding_mask.long().cumsum(1) - 1).clamp(min=0)
                position_ids = counted[:, -token_ids.shape[1] :]
        if position_ids is not None and self.positions is not None:
            given[self.positions] = position_ids.expand_as(token_ids)
        returned = self.call(module, token_ids, **given)
        if cache is not None:
            cache.keep(returned.cache)
        return returned.logits

    def loss(
        self,
        module: nn.Module,
        token_ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        loss_mask: Bool[Tensor, "B T"] | None,
    ) -> Scalar:
        """The module's own loss of labels that are aligned here, shifted if it shifts them itself."""
        assert self.labels is not None
        given: dict[str, Any] = {}
        if loss_mask is not None and self.loss_mask is not None:
            given[self.loss_mask] = loss_mask
        elif loss_mask is not None and self.ignored is not None:
            labels = labels.masked_fill(~loss_mask, self.ignored)
        if self.shifts_labels:
            first = labels[:, :1] if self.ignored is None else torch.full_like(labels[:, :1], self.ignored)
            labels = torch.cat([first, labels[:, :-1]], 1)
        loss = self.call(module, token_ids, **{self.labels: labels}, **given).loss
        if loss is None:
            raise ValueError(f"the model returned no loss although it was given {self.labels}")
        return loss

    def new_cache(self, module: nn.Module, n_rows: int, capacity: int) -> ForeignCache:
        """An empty cache of the module's kind."""
        assert self.cache is not None
        maker: Any = getattr(module, "new_cache", None)
        made = None if maker is None else maker(n_rows, capacity)
        return ForeignCache(self.cache, made, has_switch="use_cache" in self.names, can_crop=self.can_crop)

    def generate(
        self, module: nn.Module, token_ids: Int[Tensor, "B T"], max_new_tokens: int, **settings: Any
    ) -> Int[Tensor, "B U"]:
        """The module's own ``generate``, as transformers' or ProofLM's is called."""
        given = {name: value for name, value in settings.items() if value not in (None, ())}
        method: Any = module.generate
        if not hasattr(module, "generation_config"):
            return method(token_ids, max_new_tokens, **given)
        seed = given.pop("seed", None)
        if seed is not None:
            torch.manual_seed(seed)
        temperature = given.pop("temperature", 0.0)
        sampling: dict[str, Any] = {"do_sample": False}
        if temperature > 0.0:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": given.pop("top_k", 0)}
            sampling["top_p"] = given.pop("top_p", 1.0)
        stop_ids = list(given.pop("stop_ids", ()))
        mask = given.pop("padding_mask", None)
        mask = torch.ones_like(token_ids) if mask is None else mask.long()
        pad = stop_ids[0] if stop_ids else 0
        return method(
            token_ids,
            attention_mask=mask,
            max_new_tokens=max_new_tokens,
            eos_token_id=stop_ids or None,
            pad_token_id=pad,
            **sampling,
        )

    def note(self, what: str, value: object, how: str) -> None:
        """Remembers one finding."""
        self.findings.append(Finding(what, str(value), how))
