"""How a foreign module is called is found from its signature and confirmed by its behaviour."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proof_lm.errors import TargetError
from proof_lm.verify import CONTRACTS, Adapter, ForeignSubject, Verdict, randomized, verify
from proof_lm.verify.subjects.calls import ADDITIVE, BOOLEAN, ONES, PADS
from sizes import LEARNED, SMALL


class Foreign(nn.Module):
    """A right decoder under another interface: what subclasses do with it is theirs."""

    def __init__(self, config: Any = SMALL) -> None:
        super().__init__()
        self.inner = randomized(config, 0)

    def run(self, ids: Tensor, **given: Any) -> Tensor:
        return self.inner(ids, **given)[0]


class Ones(Foreign):
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None:
            return self.run(input_ids)
        if attention_mask.dtype != torch.int64:
            raise TypeError("integers only")
        return self.run(input_ids, padding_mask=attention_mask == 1)


class Boolean(Foreign):
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None and mask.dtype != torch.bool:
            raise TypeError("booleans only")
        return self.run(ids, padding_mask=mask)


class Pads(Foreign):
    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        return self.run(x, padding_mask=None if key_padding_mask is None else ~key_padding_mask.bool())


class Additive(Foreign):
    def forward(self, idx: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is not None and not attention_mask.is_floating_point():
            raise TypeError("floating point only")
        return self.run(idx, padding_mask=None if attention_mask is None else attention_mask == 0)


@pytest.mark.parametrize(
    ("kind", "form"), [(Ones, ONES), (Boolean, BOOLEAN), (Pads, PADS), (Additive, ADDITIVE)]
)
def test_the_convention_of_a_mask_is_found(kind: type[Foreign], form: str) -> None:
    subject = ForeignSubject("mask", kind())
    assert subject.can("padding mask")
    assert any(finding.value.endswith(form) for finding in subject.findings)
    padding = [c for c in verify(subject, level="quick").results if c.name == "padding"]
    assert padding[0].verdict is Verdict.HOLDS


class Shifted(Foreign):
    def forward(self, ids: Tensor, labels: Tensor | None = None) -> SimpleNamespace:
        logits = self.run(ids)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return SimpleNamespace(logits=logits, loss=loss)


class Aligned(Foreign):
    def forward(self, ids: Tensor, targets: Tensor | None = None) -> Any:
        logits = self.run(ids)
        if targets is None:
            return logits[:, -1:], None
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


class LossFirst(Foreign):
    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.run(ids)
        if labels is None:
            return {"logits": logits}
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class ShiftedTwice(Foreign):
    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.run(ids)
        if labels is None:
            return logits, None
        return logits, nn.functional.cross_entropy(logits[:, :-2].flatten(0, 1), labels[:, 2:].flatten())


@pytest.mark.parametrize(
    ("kind", "convention", "ignored"),
    [
        (Shifted, "labels, shifted inside", "labels = -100 do not count"),
        (Aligned, "targets, aligned with the logits", "targets = -1 do not count"),
        (LossFirst, "labels, aligned with the logits", "labels = -100 do not count"),
    ],
)
def test_the_convention_of_labels_is_found(kind: type[Foreign], convention: str, ignored: str) -> None:
    subject = ForeignSubject("loss", kind())
    found = {finding.what: finding.value for finding in subject.findings}
    assert (found["loss"], found["loss mask"]) == (convention, ignored)
    (loss,) = [r for r in verify(subject, level="quick").results if r.name == "masked-loss"]
    assert loss.verdict is Verdict.HOLDS, loss.worst


def test_labels_that_are_shifted_twice_are_a_violation() -> None:
    subject = ForeignSubject("twice", ShiftedTwice())
    (loss,) = [r for r in verify(subject, level="quick").results if r.name == "masked-loss"]
    assert loss.verdict is Verdict.VIOLATED


def test_logits_of_the_last_position_only_are_asked_for_with_labels() -> None:
    subject = ForeignSubject("last", Aligned())
    assert subject.logits(torch.zeros(2, 5, dtype=torch.int64), "forward").shape == (2, 5, SMALL.vocab_size)


class Views(Aligned):
    """Views its ids and labels as one row, as nanoGPT does its labels."""

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> Any:
        for tensor in (idx, targets):
            if tensor is not None:
                tensor.view(-1)
        return super().forward(idx, targets)


def test_ids_and_labels_can_be_viewed_whatever_they_were_cut_from() -> None:
    ids = torch.zeros(2, 9, dtype=torch.int64)[:, :5]
    assert ForeignSubject("views", Views()).logits(ids, "forward").shape == (2, 5, SMALL.vocab_size)


class WithCache(Foreign):
    """Returns its cache, as transformers' models do, and wants the mask of all tokens, cached ones included."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = False,
    ) -> Any:
        if not use_cache:
            mask = None if attention_mask is None else attention_mask.bool()
            return SimpleNamespace(logits=self.run(input_ids, padding_mask=mask), past_key_values=None)
        cache = self.inner.new_cache(len(input_ids)) if past_key_values is None else past_key_values
        mask = None if attention_mask is None else attention_mask[:, -input_ids.shape[1] :].bool()
        return SimpleNamespace(
            logits=self.run(input_ids, padding_mask=mask, cache=cache), past_key_values=cache
        )


class OffByOneWithCache(WithCache):
    """The cached positions begin at 1."""

    def run(self, ids: Tensor, **given: Any) -> Tensor:
        cache = given.get("cache")
        if cache is not None and cache.length:
            given["position_ids"] = cache.length + 1 + torch.arange(ids.shape[1])
        return super().run(ids, **given)


@pytest.mark.parametrize(
    ("kind", "verdict"), [(WithCache, Verdict.HOLDS), (OffByOneWithCache, Verdict.VIOLATED)]
)
def test_a_cache_that_is_returned_is_found_and_judged(kind: type[Foreign], verdict: Verdict) -> None:
    subject = ForeignSubject("cache", kind(LEARNED.with_(vocab_size=33)))
    assert subject.can("cache")
    (cache,) = [r for r in verify(subject, level="quick").results if r.name == "cache"]
    assert cache.verdict is verdict, (cache.reason, cache.worst)


class Nothing(Foreign):
    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        return {"scores": self.run(ids)}


class Flat(Foreign):
    def forward(self, ids: Tensor) -> Tensor:
        return self.run(ids).flatten(1)


class Raises(Foreign):
    def forward(self, ids: Tensor) -> Tensor:
        raise KeyError("device")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (Nothing, "returned a dict with scores"),
        (Flat, r"must be floating-point numbers of shape \(batch, time, vocabulary\), got shape \(1, 62\)"),
        (Raises, r"token ids of shape \(1, 2\) raised KeyError: 'device'"),
        (nn.Identity, "has no parameters"),
    ],
)
def test_what_is_no_decoder_is_refused_with_what_to_do(build: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        ForeignSubject("no decoder", build())


class Scores(Adapter):
    """The adapter of its documentation, for :class:`Nothing`."""

    vocab_size, context_length = SMALL.vocab_size, SMALL.context_length

    def logits(self, module: nn.Module, token_ids: Tensor) -> Tensor:
        return module(token_ids)["scores"]


def test_an_adapter_says_how_a_decoder_is_called() -> None:
    subject = ForeignSubject("adapted", Scores(Nothing()))
    assert not subject.can("padding mask")
    assert not subject.can("loss")
    verification = verify(subject, level="quick")
    assert verification.exit_status == 0
    assert {r.name for r in verification.results if r.verdict is Verdict.HOLDS} >= {
        "causality",
        "batch-independence",
    }


class Unfinished(Adapter):
    def logits(self, module: nn.Module, token_ids: Tensor) -> Tensor:
        return module(token_ids)["scores"]


class OnlyInEval(Foreign):
    def forward(self, ids: Tensor) -> Tensor:
        if self.training:
            raise RuntimeError("not now")
        return self.run(ids)


def test_an_adapter_without_sizes_is_refused_and_a_failing_train_mode_is_told() -> None:
    with pytest.raises(TargetError, match="no attribute 'vocab_size'"):
        ForeignSubject("unfinished", Unfinished(Nothing()))
    subject = ForeignSubject("eval", OnlyInEval())
    assert subject.absent["dropout"] == "in train mode it raised RuntimeError: not now"


class HalfInside(Foreign):
    """Casts to float32 on the way, as many norms do."""

    def forward(self, ids: Tensor) -> Tensor:
        logits = self.run(ids)
        return logits.float().to(logits.dtype)


def test_arithmetic_that_is_narrower_than_the_weights_is_seen() -> None:
    assert ForeignSubject("wide", Flatless()).unit_roundoff == 2.0**-53
    subject = ForeignSubject("narrow", HalfInside())
    assert subject.unit_roundoff == 2.0**-24
    assert next(subject.module.parameters()).dtype == torch.float32
    assert verify(subject, level="quick").exit_status == 0


class Flatless(Foreign):
    def forward(self, ids: Tensor) -> Tensor:
        return self.run(ids)


def test_the_model_is_left_as_it_was() -> None:
    model = Ones().train()
    model.register_buffer("calls", torch.zeros(1))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.random.get_rng_state()
    verify(ForeignSubject("left alone", model))
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), random)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_mask_of_the_call_alone_beside_a_cache_is_found() -> None:
    subject = ForeignSubject("ours under another name", randomized(SMALL, 0))
    assert any(finding.what == "padding_mask beside a cache" for finding in subject.findings)
    some = [contract for contract in CONTRACTS if contract.name in ("cache", "cache-state", "padding")]
    results = verify(subject, some, level="quick").results
    assert [(result.name, result.verdict) for result in results] == [
        (contract.name, Verdict.HOLDS) for contract in some
    ]
