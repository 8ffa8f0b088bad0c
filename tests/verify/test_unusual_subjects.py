"""Contracts of modes, state and weights, on subjects that lack something."""

from typing import Any

import pytest
import torch

from proof_lm.model import ProofLM
from proof_lm.verify import CONTRACTS, ContractResult, ProofSubject, Subject, Verdict, randomized
from proof_lm.verify.probe import Probe
from sizes import SMALL

BY_NAME = {contract.name: contract for contract in CONTRACTS}


def judge(name: str, subject: Subject, **sizes: Any) -> ContractResult:
    return BY_NAME[name].judge(subject, Probe(subject, 3, **sizes))


@pytest.fixture
def subject() -> ProofSubject:
    return ProofSubject("model", randomized(SMALL, 0))


@pytest.mark.parametrize("name", ["initialization", "config-fields"])
def test_without_a_way_to_another_config_nothing_is_asked(subject: ProofSubject, name: str) -> None:
    subject.build_with = None
    result = judge(name, subject)
    assert (result.verdict, result.reason) == (
        Verdict.NOT_APPLICABLE,
        "nothing says how to make one of another config",
    )


def test_without_a_way_to_make_another_nothing_is_materialized(subject: ProofSubject) -> None:
    subject.build = None
    assert judge("materialization", subject).reason == "nothing says how to make a new one"


def test_a_subject_that_is_not_strict_is_not_built_on_meta(subject: ProofSubject) -> None:
    subject.strict = False
    result = judge("materialization", subject)
    assert result.verdict is Verdict.HOLDS
    assert not any("meta" in m.quantity or "bfloat16" in m.quantity for m in result.measurements)


def test_without_dropout_only_eval_mode_is_asked(subject: ProofSubject) -> None:
    subject.absent["dropout"] = "none was found"
    result = judge("determinism", subject)
    assert result.verdict is Verdict.HOLDS
    assert {m.quantity for m in result.measurements} == {"max |change with the random state|, eval"}


def test_calls_that_a_subject_lacks_are_not_made(subject: ProofSubject) -> None:
    for capability in ("padding mask", "cache", "loss", "generation"):
        subject.absent[capability] = "it has none"  # type: ignore[index]
    result = judge("no-side-effects", subject)
    assert result.verdict is Verdict.HOLDS
    assert {m.where for m in result.measurements} == {"one token", "a longer row", "a refused token id"}


def test_a_model_that_refuses_no_token_id_is_not_accused_of_that(subject: ProofSubject) -> None:
    class TakesAnything(ProofLM):
        def forward(self, token_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return super().forward(token_ids % self.config.vocab_size, *args, **kwargs)

    subject.module.__class__ = TakesAnything
    assert judge("no-side-effects", subject).verdict is Verdict.HOLDS


def test_arithmetic_that_is_not_float64_has_nothing_to_compare_half_precision_with(
    subject: ProofSubject,
) -> None:
    subject.unit_roundoff = 2.0**-24
    assert judge("half-precision", subject).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(("strict", "verdict"), [(True, Verdict.VIOLATED), (False, Verdict.HOLDS)])
def test_a_dtype_that_a_model_refuses(subject: ProofSubject, strict: bool, verdict: Verdict) -> None:
    class WideOnly(ProofLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            if self.embedding.weight.dtype != torch.float64:
                raise TypeError("float64, please")
            return super().forward(*args, **kwargs)

    subject.module.__class__ = subject.native.__class__ = WideOnly
    subject.strict = strict
    result = judge("half-precision", subject)
    assert result.verdict is verdict
    assert not any("logit" in m.quantity for m in result.measurements)


def test_frozen_parameters_need_no_gradient(subject: ProofSubject) -> None:
    subject.module.blocks[0].requires_grad_(False)
    result = judge("live-parameters", subject)
    assert result.verdict is Verdict.HOLDS


def test_an_edit_of_live_parameters_is_undone_to_the_bit(subject: ProofSubject) -> None:
    before = {name: p.detach().clone() for name, p in subject.module.named_parameters()}
    judge("live-parameters", subject)
    judge("half-precision", subject)
    assert all(torch.equal(p, before[name]) for name, p in subject.module.named_parameters())


def test_a_model_without_groups_is_asked_for_none() -> None:
    class Bare(torch.nn.Module):
        parameter_groups = None

    assert "parameter groups" in _Bare("bare", Bare(), Bare()).absent


class _Bare(Subject):
    on = run = loss = new_cache = generate = embedding = embedding_and_head = None  # type: ignore[assignment]


def test_prompts_that_come_back_changed_end_the_check(subject: ProofSubject) -> None:
    class ForgetsPrompt(ProofLM):
        def generate(self, token_ids: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            return super().generate(token_ids, *args, **kwargs)[:, token_ids.shape[1] :]

    subject.module.__class__ = ForgetsPrompt
    result = judge("greedy", subject)
    assert result.verdict is Verdict.VIOLATED
    assert {m.quantity for m in result.measurements} == {"prompt tokens changed"}


@pytest.mark.parametrize("name", ["greedy", "sampling"])
def test_without_room_nothing_is_generated(name: str) -> None:
    subject = ProofSubject("short", randomized(SMALL.with_(context_length=1), 0))
    assert judge(name, subject).verdict is Verdict.NOT_APPLICABLE


def test_blocks_run_as_before_after_recomputation(subject: ProofSubject) -> None:
    judge("recomputation", subject)
    assert all("forward" not in vars(block) for block in subject.module.blocks)
