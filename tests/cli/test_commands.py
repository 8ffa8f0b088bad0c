"""``convert`` and ``generate``, each with right and with wrong input."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from proof_lm.cli.app import app
from proof_lm.verify import randomized
from proof_lm.weights import load_model, save_proof_lm
from sizes import MODERN, SMALL

Refused = Callable[..., str]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A directory with a small decoder that knows all bytes."""
    save_proof_lm(randomized(MODERN.with_(vocab_size=257), 0), tmp_path / "model")
    return tmp_path / "model"


def test_convert_there_and_back_keeps_every_bit(tmp_path: Path, saved: Path) -> None:
    assert run("convert", str(saved), str(tmp_path / "hf")).exit_code == 0
    back = run("convert", str(tmp_path / "hf"), str(tmp_path / "back"), "--format", "proof-lm")
    assert back.exit_code == 0
    first, last = load_model(saved).state_dict(), load_model(tmp_path / "back").state_dict()
    assert first.keys() == last.keys()
    assert all(torch.equal(first[name], last[name]) for name in first)


def test_convert_refuses_to_overwrite(tmp_path: Path, saved: Path, refused: Refused) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    assert "already holds files" in refused("convert", str(saved), str(tmp_path / "taken"))
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["notes.txt"]


def test_convert_says_what_a_format_cannot_express(tmp_path: Path, refused: Refused) -> None:
    save_proof_lm(randomized(SMALL, 0), tmp_path / "own")
    assert "norm" in refused("convert", str(tmp_path / "own"), str(tmp_path / "hf"))
    assert not (tmp_path / "hf").exists()


def test_generate_is_greedy_by_default_and_repeatable_with_a_seed(saved: Path) -> None:
    greedy = [run("generate", str(saved), "--prompt", "ab", "--max-tokens", "6").stdout for _ in range(2)]
    assert greedy[0] == greedy[1]
    drawn = [
        run(
            "generate",
            str(saved),
            "--prompt",
            "ab",
            "--max-tokens",
            "6",
            "--temperature",
            "2",
            "--seed",
            seed,
        ).stdout
        for seed in ("1", "1", "2")
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_generate_stops_where_the_context_ends_and_says_so(saved: Path) -> None:
    result = run("generate", str(saved), "--prompt", "x" * 25, "--max-tokens", "50")
    assert result.exit_code == 0
    assert "the context has room for 5 new tokens" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prompt", ""), "--prompt is empty"),
        (("--prompt", "x" * 40), "the prompt has 40 tokens, the model's context 29"),
        (("--prompt", "a", "--temperature", "-1"), "temperature must be a finite number, 0 (greedy) or more"),
        (("--prompt", "a", "--top-k", "0"), "top_k must be at least 1, got 0"),
        (("--prompt", "a", "--top-p", "1.5"), "top_p must be greater than 0 and at most 1, got 1.5"),
    ],
)
def test_generate_refuses_settings_that_mean_nothing(
    saved: Path, arguments: tuple[str, ...], message: str, refused: Refused
) -> None:
    assert message in refused("generate", str(saved), *arguments)


def test_a_vocabulary_without_the_prompts_bytes_is_said(refused: Refused) -> None:
    assert "does not fit a vocabulary of 32 ids" in refused("generate", "chapter", "--prompt", "hello")
