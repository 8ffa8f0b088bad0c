"""``proof-lm sheet``: what it shows and writes, and what it refuses."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from proof_lm.cli.app import app
from proof_lm.config import DecoderConfig
from proof_lm.sheet import Sheet
from proof_lm.sheet.report import schema
from proof_lm.verify import randomized
from proof_lm.weights import save_hf, save_proof_lm
from sizes import MODERN

Refused = Callable[..., str]
PLANNED = (
    "--devices",
    "8",
    "--parallel",
    "fsdp",
    "--recompute",
    "--peak-flops",
    "989e12",
    "--bandwidth",
    "3.35e12",
)
PAID = ("--price", "2", "--tokens", "15e12")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sheet", *arguments])


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json", "-")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A directory with a small decoder."""
    save_proof_lm(randomized(MODERN, 0), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("chapter", "69,120"),
        ("gpt2", "124,439,808"),
        ("smollm2-135m", "134,515,008"),
        ("llama-3.1-8b", "8,030,261,248"),
        ("llama-3.1-405b", "405,853,388,800"),
    ],
)
def test_published_parameter_counts_come_first(name: str, count: str) -> None:
    result = run(name)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{count} parameters: ")


def test_it_is_derived_without_torch_and_quickly_read() -> None:
    program = (
        "import sys; from typer.testing import CliRunner; from proof_lm.cli.app import app;"
        "r = CliRunner().invoke(app, ['sheet', 'llama-3.1-405b', '--html', '/dev/null']);"
        "print(r.exit_code, [m for m in ('torch', 'numpy', 'sympy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "0 []"


@pytest.mark.parametrize("arguments", [("gpt2",), ("modern", "--check"), ("llama-3.1-8b", *PLANNED, *PAID)])
def test_the_json_is_what_its_schema_says(arguments: tuple[str, ...]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.Draft202012Validator(schema()).validate(document(*arguments))


def test_the_json_adds_up() -> None:
    found = document("smollm2-135m", "--batch", "3", "--seq", "100")
    assert sum(tensor["count"] for tensor in found["parameters"]) == found["parameter_count"] == 134_515_008
    products = sum(o["flops"] * o["layers"] for o in found["operations"] if o["kind"] == "product")
    assert found["flops"]["forward"]["products"] == products
    assert found["flops"]["training_step"]["products"] == 3 * products
    assert found["dimensions"]["B"], found["dimensions"]["T"] == (3, 100)


def test_weights_need_not_be_there(saved: Path, tmp_path: Path) -> None:
    native = document(str(saved))
    (saved / "model.safetensors").unlink()
    assert document(str(saved)) == native
    assert DecoderConfig.from_dict(native["config"]) == MODERN
    save_hf(randomized(MODERN, 0), tmp_path / "hf")
    (tmp_path / "hf" / "model.safetensors").unlink()
    foreign = document(str(tmp_path / "hf" / "config.json"))
    assert foreign["parameter_count"] == native["parameter_count"]
    assert foreign["flops"] == native["flops"]


def test_a_bare_config_is_enough(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(MODERN.to_json())
    assert document(str(tmp_path / "mine.json"))["config"] == MODERN.to_dict()


def test_scaled_rotary_angles_change_no_shape(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert document(str(tmp_path))["parameter_count"] == 8_030_261_248


def test_csv_has_one_number_a_line() -> None:
    result = run("chapter", "modern", "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    totals = {row["target"]: row["value"] for row in rows if row["section"] == "total"}
    assert totals == {"chapter": "69120", "modern": "83376"}
    assert all(float(row["value"]) >= 0 for row in rows)


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert name not in ("src", "onload", "onclick"), (tag, name)
            assert not (name == "href" and value and not value.startswith(("#", "data:"))), value


def test_the_page_is_self_contained_and_escaped(tmp_path: Path, saved: Path) -> None:
    hostile = saved.rename(tmp_path / "<script>alert(1)<")
    assert run(str(hostile), "--html", str(tmp_path / "sheet.html")).exit_code == 0
    text = (tmp_path / "sheet.html").read_text()
    page = Page(text)
    assert "script" not in page.tags
    assert {"header", "main", "footer", "svg"} <= set(page.tags)
    assert page.tags.count("h1") == 1
    assert page.tags.count("polyline") == 4


def test_markdown_is_escaped_and_has_every_table(tmp_path: Path, saved: Path) -> None:
    hostile = saved.rename(tmp_path / "a|b*c")
    assert run(str(hostile), *PLANNED, "--markdown", str(tmp_path / "sheet.md")).exit_code == 0
    text = (tmp_path / "sheet.md").read_text()
    assert r"a\|b\*c" in text.split("\n")[0]
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)
    assert text.count("\n## ") == 13


def test_decoders_stand_side_by_side() -> None:
    result = run("chapter", "gpt2", "smollm2-135m", "--seq", "16", *PLANNED, *PAID)
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.split("\n") if line.startswith("parameters  ")]
    assert line.split()[1:] == ["69,120", "124,439,808", "134,515,008"]
    assert "sum on each device" in result.stdout
    assert "cost" in result.stdout
    shown = " ".join(result.stdout.split())
    assert (
        "8 devices, fsdp, layers recomputed, B rows each. 989 TFLOP/s a device, of which 40% is reached."
        in shown
    )
    assert "the visible ones, P = T (T + 1) / 2 a row and head, fewer in a window." in shown


@pytest.mark.parametrize(
    ("count", "said"),
    [  # 12 layers of width 768, 1024 tokens, 50,257 ids: 6 (12 (12 768^2) + 768 50257) 1024 + 12 12 768 1024^2
        ("dense", "takes 874,944,921,600 FLOPs (dense: 2 a multiply-add"),
        ("macs", "takes 437,472,460,800 MACs (macs: multiply-accumulates"),
        ("6n", "takes 764,558,180,352 FLOPs (6n: 6 a parameter"),  # 6 x 124,439,808 x 1024
    ],
)
def test_a_step_is_counted_as_wanted_and_says_so(count: str, said: str) -> None:
    assert said in run("gpt2", "--count", count).stdout.replace("\n", "")
    assert f"training step ({count})" in run("gpt2", "chapter", "--seq", "16", "--count", count).stdout


def test_many_documents_are_a_list() -> None:
    found = document("chapter", "modern")
    assert found["format"] == "proof-lm/sheets"
    for one in found["sheets"]:
        jsonschema.Draft202012Validator(schema()).validate(one)


def test_check_says_what_is_not_as_the_sheet_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("chapter", "--check").exit_code == 0
    monkeypatch.setattr(Sheet, "cache_per_token", 17)
    result = run("chapter", "--check")
    assert result.exit_code == 1
    assert "1 of 24 are not as the sheet says" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "no target 'nowhere'"),
        (("chapter", "--seq", "17"), "17 tokens exceeds context_length = 16"),
        (("gpt2", "chapter", "--seq", "64"), "chapter: a sequence of 64 tokens exceeds context_length = 16"),
        (("chapter", "--dtype", "int4"), "dtype must be one of float64"),
        (("chapter", "--count", "nine"), "--count must be one of dense, causal"),
        (("chapter", "--parallel", "tp"), "--parallel must be ddp or fsdp"),
        (("chapter", "--tokens", "1e9"), "--tokens needs --peak-flops"),
        (("chapter", "--bandwidth", "1e9"), "--bandwidth needs --peak-flops"),
        (("chapter", "--peak-flops", "1e9", "--budget", "5"), "--budget needs --price"),
        (
            ("chapter", "--peak-flops", "1e9", "--price", "1", "--budget", "5", "--tokens", "5"),
            "give one of them",
        ),
        (("chapter", "--peak-flops", "1e9", "--utilization", "1.5"), "--utilization must be at most 1"),
        (("chapter", "--peak-flops", "1e9", "--utilization", "0"), "--utilization must be more than 0"),
        (("chapter", "--peak-flops", "1e9", "--tokens", "nan"), "--tokens must be more than 0 and finite"),
        (("chapter", "--peak-flops", "1e9", "--tokens", "0.5"), "--tokens must be at least 1"),
        (("chapter", "--peak-flops", "1e9", "--price", "2"), "--price needs --tokens or --budget"),
        (("chapter", "--price", "2"), "--price needs --peak-flops"),
        (("chapter", "--utilization", "0.5"), "--utilization needs --peak-flops"),
        (("chapter", "--peak-flops", "-1"), "--peak-flops must be more than 0"),
        (("chapter", "--json", "-", "--csv", "-"), "named for two reports"),
        (("chapter", "--html", "no/such/folder/x.html"), "there is no directory"),
        (("chapter", "--seq", "1", "--check"), "cannot be checked"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], message: str, refused: Refused) -> None:
    assert message in refused("sheet", *arguments)


def test_a_decoder_without_room_is_not_built(refused: Refused) -> None:
    message = refused("verify", "llama-3.1-405b")
    assert "needs 4,870.2 GB for its weights" in message
    assert "proof-lm sheet llama-3.1-405b" in message


def test_the_config_of_a_directory_is_read_without_torch(tmp_path: Path) -> None:
    save_hf(randomized(MODERN, 0), tmp_path / "hf")
    program = (
        "import sys; from typer.testing import CliRunner; from proof_lm.cli.app import app;"
        f"r = CliRunner().invoke(app, ['sheet', {str(tmp_path / 'hf')!r}]);"
        "print(r.exit_code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "0 False"
