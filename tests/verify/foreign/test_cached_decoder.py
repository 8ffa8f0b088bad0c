"""Right decoders that are unusual are accepted; faults that show late, or in train mode alone, are rejected."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from proof_lm.errors import TargetError
from proof_lm.verify import CONTRACTS, ContractResult, ForeignSubject, Verdict
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import copied
from verify.foreign.cached_decoder import CONTEXT, VOCABULARY, WIDTH, Decoder, drawn

BY_NAME = {contract.name: contract for contract in CONTRACTS}


def judge(name: str, decoder: nn.Module, seed: int = 3) -> ContractResult:
    subject = ForeignSubject("decoder", decoder)
    return BY_NAME[name].judge(subject, Probe(subject, seed))


class PositionsEndWithTheCache(Decoder):
    """Right for the first tokens beside a cache."""

    def late(self, positions: Tensor, n_held: int) -> Tensor:
        return positions - max(0, n_held - 8)


class MaskIgnoredInTraining(Decoder):
    def real(self, ids: Tensor, mask: Tensor | None, n_held: int) -> Tensor:
        return super().real(ids, None if self.training else mask, n_held)


class ValuesDetachedInTraining(Decoder):
    def kept(self, values: Tensor) -> Tensor:
        return values.detach() if self.training else values


class MaskChangedInPlace(Decoder):
    def real(self, ids: Tensor, mask: Tensor | None, n_held: int) -> Tensor:
        real = super().real(ids, mask, n_held).clone()
        if mask is not None:
            mask.fill_(1)
        return real


class IdsByNameAndThreeOutputs(Decoder):
    def forward(self, *, input_ids: Tensor, past_key_values: Any = None, labels: Tensor | None = None) -> Any:
        return super().forward(input_ids, past_key_values=past_key_values, labels=labels)

    def answer(self, logits: Tensor, loss: Tensor | None) -> Any:
        return logits, loss, self.held


class WrongBesideACache(IdsByNameAndThreeOutputs):
    def forward(self, *, input_ids: Tensor, past_key_values: Any = None, labels: Tensor | None = None) -> Any:
        self.factor = 1.0 if past_key_values is None else 1.1
        return super().forward(input_ids=input_ids, past_key_values=past_key_values, labels=labels)

    def feed(self, x: Tensor) -> Tensor:
        return self.factor * super().feed(x)


@pytest.mark.parametrize(
    ("fault", "contract"),
    [
        (PositionsEndWithTheCache, "cache"),
        (MaskIgnoredInTraining, "padding"),
        (ValuesDetachedInTraining, "gradient-directions"),
        (MaskChangedInPlace, "no-side-effects"),
        (WrongBesideACache, "cache"),
    ],
)
def test_a_fault_is_rejected_and_without_it_the_decoder_accepted(fault: type[Decoder], contract: str) -> None:
    assert judge(contract, drawn(Decoder())).verdict is Verdict.HOLDS
    assert judge(contract, drawn(fault())).verdict is Verdict.VIOLATED


class KeepsAFunction(Decoder):
    """As minGPT's block keeps one, which has captured layers of the model."""

    def __init__(self) -> None:
        super().__init__()
        up, down = self.up, self.down
        self.fed = lambda x: down(nnf.gelu(up(x)))

    def feed(self, x: Tensor) -> Tensor:
        return self.fed(x)


class DropoutByTheConfig(Decoder):
    def noisy(self, x: Tensor) -> Tensor:
        return nnf.dropout(x, self.config.attn_pdrop, self.training)


class DropoutThatNobodyFinds(Decoder):
    def noisy(self, x: Tensor) -> Tensor:
        return nnf.dropout(x, 0.2, self.training)


class CountsInTraining(Decoder):
    """A buffer that training moves, and the next call uses."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("balance", torch.zeros(WIDTH))

    def feed(self, x: Tensor) -> Tensor:
        fed = super().feed(x) + self.balance
        if self.training:
            self.balance += 0.1
        return fed


class OneNumber(Decoder):
    """A gate of no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.tensor(0.7))

    def feed(self, x: Tensor) -> Tensor:
        return self.gate * super().feed(x)


class EditsLabels(Decoder):
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        shifted = labels[:, 1:].clone()
        labels.fill_(-100)
        return nnf.cross_entropy(logits[:, :-1].flatten(0, 1), shifted.flatten())


@pytest.mark.parametrize(
    ("build", "contract"),
    [
        (Decoder, "input-gradients"),  # its table of positions is as long as the vocabulary, and comes first
        (KeepsAFunction, "live-parameters"),
        (DropoutByTheConfig, "determinism"),
        (DropoutThatNobodyFinds, "determinism"),
        (CountsInTraining, "determinism"),
        (CountsInTraining, "half-precision"),
        (OneNumber, "save-load"),
        (EditsLabels, "masked-loss"),
        (IdsByNameAndThreeOutputs, "cache"),
    ],
)
def test_an_unusual_decoder_is_accepted(build: Callable[[], Decoder], contract: str) -> None:
    assert CONTEXT == VOCABULARY
    result = judge(contract, drawn(build()))
    assert (result.verdict, result.reason) == (Verdict.HOLDS, "")


@pytest.mark.parametrize("seed", range(4))
def test_a_token_without_a_gradient_is_not_probed_with(seed: int) -> None:
    decoder = drawn(Decoder(padding_id=7))
    assert judge("input-gradients", decoder, seed).verdict is Verdict.HOLDS
    assert judge("gradient-directions", decoder, seed).verdict is Verdict.HOLDS


def test_a_copy_stands_alone() -> None:
    decoder = drawn(KeepsAFunction())
    other = copied(decoder).double()
    ids = torch.arange(5)[None]
    before = decoder(ids).logits
    with torch.no_grad():
        other.up.weight.zero_()
    torch.testing.assert_close(decoder(ids).logits, before, rtol=0, atol=0)
    assert other(ids).logits.dtype == torch.float64
    assert (other(ids).logits.float() - before).abs().max() > 1e-3


def test_a_model_whose_copy_calls_the_original_is_refused() -> None:
    held: dict[str, nn.Module] = {}

    class Outside(Decoder):
        def feed(self, x: Tensor) -> Tensor:
            return held["down"](nnf.gelu(self.up(x)))

    decoder = drawn(Outside())
    held["down"] = decoder.down
    with pytest.raises(TargetError, match="still calls down of the original"):
        ForeignSubject("decoder", decoder)


def test_a_model_that_raises_for_some_tokens_only_is_refused_in_words() -> None:
    class Picky(Decoder):
        def late(self, positions: Tensor, n_held: int) -> Tensor:
            if self.ids[0, 0] > self.ids[0, -1]:
                raise RuntimeError("tokens must rise")
            return positions

        def forward(self, input_ids: Tensor) -> Any:
            self.ids = input_ids
            return super().forward(input_ids)

    with pytest.raises(TargetError, match="calling it raised RuntimeError: tokens must rise"):
        ForeignSubject("decoder", drawn(Picky()))


def test_dropout_of_a_config_comes_back() -> None:
    decoder = drawn(DropoutByTheConfig())
    subject = ForeignSubject("decoder", decoder)
    config: Any = subject.module.config
    with subject.training(0.5):
        assert config.attn_pdrop == 0.5
    assert config.attn_pdrop == 0.1
    assert decoder.config.attn_pdrop == 0.1
