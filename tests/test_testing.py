"""``check_decoder`` and ``parametrize_with_contracts``, on a decoder of a few lines that is right or leaks."""

import io
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from proof_lm.errors import TargetError
from proof_lm.model import DecoderConfig, ProofLM
from proof_lm.testing import (
    ContractUndecided,
    ContractViolation,
    UnexpectedPass,
    check_decoder,
    parametrize_with_contracts,
)
from proof_lm.verify import Adapter, ForeignSubject, Verdict

pytest_plugins = ["pytester"]

TINY = DecoderConfig(vocab_size=13, context_length=11, n_layers=1, d_model=12, n_heads=3, d_ff=17)


class Decoder(nn.Module):
    """One attention layer. Without the mask the future is seen, and nothing else is wrong."""

    def __init__(self, *, masked: bool = True) -> None:
        super().__init__()
        self.masked = masked
        self.tokens, self.places = nn.Embedding(13, 12), nn.Embedding(11, 12)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 13)

    def forward(self, token_ids: Tensor) -> Tensor:
        n_tokens = token_ids.shape[1]
        x = self.tokens(token_ids) + self.places(torch.arange(n_tokens))
        hidden = torch.ones(n_tokens, n_tokens, dtype=torch.bool).triu(1) if self.masked else None
        return self.head(self.norm(x + self.attention(x, x, x, attn_mask=hidden, need_weights=False)[0]))


class Forgetful(Decoder):
    """Has no memory for three rows: nothing can be decided."""

    def forward(self, token_ids: Tensor) -> Tensor:
        if token_ids.shape[0] == 3:
            raise MemoryError("three rows are too many")
        return super().forward(token_ids)


class Loud(Decoder):
    """Raises with what drives a terminal."""

    def forward(self, token_ids: Tensor) -> Tensor:
        if token_ids.shape[0] == 3:
            raise ValueError("\x1b[31mred\nand more")
        return super().forward(token_ids)


class Warning_(Decoder):  # noqa: N801 - Warning is a builtin
    """Warns in each call."""

    def forward(self, token_ids: Tensor) -> Tensor:
        warnings.warn("this is slow", UserWarning, stacklevel=1)
        return super().forward(token_ids)


class Named(Adapter):
    """The same decoder, called by hand."""

    vocab_size, context_length = 13, 11

    def logits(self, module: nn.Module, token_ids: Tensor) -> Tensor:
        return module(token_ids)


build_leaky = partial(Decoder, masked=False)


@pytest.fixture(autouse=True)
def _shapes_unchecked(_shapes_checked: None) -> None:
    jaxtyping.config.update("jaxtyping_disable", True)  # as for all tests that verify


@pytest.mark.parametrize(
    "given",
    [
        Decoder,
        Decoder(),
        Named(Decoder()),
        lambda: Named(Decoder()),
        ForeignSubject("a subject", Decoder()),
        ProofLM(TINY),
        partial(ProofLM, TINY),
    ],
    ids=["class", "module", "adapter", "builds an adapter", "subject", "ProofLM", "builds a ProofLM"],
)
def test_a_right_decoder_passes_however_it_is_given(given: Any) -> None:
    verification = check_decoder(given, only=["causality", "determinism"], level="quick")
    assert [(r.name, r.verdict) for r in verification.results] == [
        ("causality", Verdict.HOLDS),
        ("determinism", Verdict.HOLDS),
    ]


def test_what_is_made_can_be_made_anew() -> None:
    given, made = (
        check_decoder(model, only=["materialization", "causality"]) for model in (Decoder(), Decoder)
    )
    assert [r.verdict for r in given.results] == [Verdict.HOLDS, Verdict.NOT_APPLICABLE]
    assert [r.verdict for r in made.results] == [Verdict.HOLDS, Verdict.HOLDS]


def test_a_violation_raises_with_one_line_and_the_report() -> None:
    with pytest.raises(ContractViolation) as raised:
        check_decoder(build_leaky, only=["causality", "determinism"], level="quick")
    text = str(raised.value)
    assert text.splitlines()[0].startswith("causality is violated: ")
    assert "moves position" in text.splitlines()[0]
    assert "smallest case: 1 row of 2 tokens" in text
    assert "1 holds, 1 violated; 2 of 2 contracts decided" in text
    assert "\x1b" not in text
    assert raised.value.verification.count(Verdict.VIOLATED) == 1


def test_several_violations_are_named_in_the_first_line() -> None:
    with pytest.raises(
        ContractViolation, match=r"^2 of 3 contracts are violated for Decoder: causality, prefix\n"
    ):
        check_decoder(build_leaky, only=["prefix", "determinism", "causality"], level="quick")


def test_a_violation_is_diagnosed_where_the_weights_are_known() -> None:
    class Leaky(ProofLM):
        def forward(self, token_ids: Tensor, *given: Any, **named: Any) -> Any:
            logits, loss = super().forward(token_ids, *given, **named)
            return logits + logits.flip(1), loss

    with pytest.raises(ContractViolation, match="diagnosis: no fault in the catalogue behaves so"):
        check_decoder(Leaky(TINY), only=["causality"], level="quick")


def test_what_is_not_decided_does_not_pass() -> None:
    with pytest.raises(ContractUndecided, match=r"^causality is inconclusive: not enough memory: three rows"):
        check_decoder(Forgetful, only=["causality"], level="quick")


def test_what_the_decoder_says_is_shown_and_drives_no_terminal() -> None:
    with pytest.raises(ContractViolation, match=r"^causality is violated: raised ValueError: ") as raised:
        check_decoder(Loud, only=["causality"], level="quick")
    assert str(raised.value).splitlines()[0].endswith("\\x1b[31mred and more")
    assert "\x1b" not in str(raised.value)


def test_nothing_that_applies_is_no_pass() -> None:
    with pytest.raises(ContractUndecided, match=r"^Decoder: no contract applies to it"):
        check_decoder(Decoder, only=["window", "cache"])


def test_an_expected_failure_passes_and_one_that_holds_does_not() -> None:
    expected = {"causality": "an encoder", "window": "not judged here"}
    verification = check_decoder(
        build_leaky, only=["causality", "determinism"], level="quick", expected_failures=expected
    )
    assert verification.exit_status == 1
    with pytest.raises(
        UnexpectedPass,
        match=r"^causality was expected to fail \(an encoder\), and holds: expect it no longer",
    ):
        check_decoder(Decoder, only=["causality"], level="quick", expected_failures=expected)


def test_a_violation_comes_before_what_else_is_wrong() -> None:
    with pytest.raises(ContractViolation, match=r"^causality is violated"):
        check_decoder(
            build_leaky,
            only=["causality", "determinism"],
            level="quick",
            expected_failures={"determinism": "dropout"},
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(check_decoder, Decoder, only=["causalty"]), "no contract named 'causalty'; there are"),
        (partial(check_decoder, Decoder, only="causalty"), "no contract named 'causalty'; there are"),
        (partial(check_decoder, Decoder, level="deep"), "no level named 'deep'; there are quick"),
        (partial(check_decoder, Decoder, expected_failures={"a": "b"}), "no contract named 'a'"),
        (partial(check_decoder, 7), "a int is no decoder; give a torch.nn.Module"),
        (partial(check_decoder, io.StringIO), "StringIO made a StringIO; it must return a torch.nn.Module"),
        (partial(check_decoder, nn.Identity()), "the model has no parameters"),
        (partial(parametrize_with_contracts, [Decoder], only=["a"]), "no contract named 'a'"),
        (
            partial(parametrize_with_contracts, [Decoder], expected_failures={"a": "b"}),
            "no contract named 'a'",
        ),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TargetError) as raised:
        call()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_tests_own_random_numbers_and_filters_are_left_alone() -> None:
    """A warning that is an error around it is none inside, where it would be the subject's."""
    before = torch.random.get_rng_state()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("error")
        verification = check_decoder(Warning_, only=["causality", "materialization"])
        with pytest.raises(UserWarning, match="an error again"):
            warnings.warn("an error again", UserWarning, stacklevel=1)
    assert verification.exit_status == 0
    assert "this is slow" in {str(warning.message) for warning in seen}
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_seed_decides_the_weights_that_are_drawn() -> None:
    first, again, other = (
        check_decoder(Decoder, only=["prefix"], level="quick", seed=seed).results[0].worst
        for seed in (3, 3, 4)
    )
    assert first == again != other


SUITE = """
    from pathlib import Path
    from proof_lm.testing import parametrize_with_contracts
    from test_testing import Decoder

    def build():
        with Path("built").open("a") as file:
            file.write("right ")
        return Decoder()

    def build_leaky():
        with Path("built").open("a") as file:
            file.write("leaky ")
        return Decoder(masked=False)

    CONTRACTS = ["causality", "window", "determinism", "prefix"]

    @parametrize_with_contracts([build, build_leaky], level="quick", only=CONTRACTS{expected})
    def test_decoder(check):
        check()
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """pytest without anybody's plugins, with lines that are not cut."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("COLUMNS", "250")
    return pytester.runpytest


def test_there_is_one_test_per_contract_and_model_and_each_model_is_made_once(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(SUITE.format(expected=""))
    result = run("-rA")
    result.assert_outcomes(passed=4, skipped=2, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "PASSED *::test_decoder?build-causality?",
            "PASSED *::test_decoder?build_leaky-determinism?",
            "FAILED *::test_decoder?build_leaky-causality? - *ContractViolation: causality is violated: *",
            "FAILED *::test_decoder?build_leaky-prefix? - *",
            "SKIPPED ?2? *: not applicable: no window is declared",
        ]
    )
    assert (pytester.path / "built").read_text() == "right leaky "
    assert "def __call__" not in result.stdout.str()  # a stack of ours says nothing


@pytest.mark.parametrize(
    "expected",
    [
        '{"causality": "an encoder"}',
        'lambda model: {} if model.masked else {"causality": "an encoder", "prefix": "an encoder"}',
    ],
    ids=["reasons", "reasons of the model"],
)
def test_expected_failures_are_strict(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], expected: str
) -> None:
    pytester.makepyfile(SUITE.format(expected=f", expected_failures={expected}"))
    result = run("-rxf", "-k", "causality or prefix")
    if expected.startswith("{"):
        result.assert_outcomes(passed=1, failed=2, xfailed=1, deselected=4)
        result.stdout.fnmatch_lines(
            ["FAILED *build-causality? - *UnexpectedPass: causality was expected to fail (an encoder)*"]
        )
    else:
        result.assert_outcomes(passed=2, xfailed=2, deselected=4)
        plain = run("--runxfail", "-k", "causality")
        plain.assert_outcomes(passed=1, failed=1, deselected=6)
    result.stdout.fnmatch_lines(["XFAIL *build_leaky-causality? - *an encoder"])


def test_reasons_for_an_unknown_contract_are_an_error_of_the_test(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(SUITE.format(expected=', expected_failures=lambda _: {"causalty": "typo"}'))
    result = run("-k", "build-causality")
    result.assert_outcomes(failed=1, deselected=7)
    result.stdout.fnmatch_lines(["*TargetError: no contract named 'causalty'; there are *"])
