"""The targets for other projects' decoders: that they say what is missing, and what the verifier says of the peers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof_lm.cli.subjects import Source
from proof_lm.errors import TargetError

PEERS = Path(__file__).parents[2] / "examples" / "peers"
REPOSITORIES = {
    "nanogpt:build": "karpathy/nanoGPT",
    "nanochat:build": "karpathy/nanochat",
    "litgpt:build": "Lightning-AI/litgpt",
    "llms_from_scratch:build": "rasbt/LLMs-from-scratch",
    "llms_from_scratch:build_fast": "rasbt/LLMs-from-scratch",
    "llms_from_scratch:build_cached": "rasbt/LLMs-from-scratch",
    "gpt_fast:build": "meta-pytorch/gpt-fast",
    "x_transformers:build": "lucidrains/x-transformers",
    "cs336:build": "stanford-cs336/assignment1-basics",
}
# Established by reading the peer's code and by a script without the verifier for each; docs/peers.md explains them.
VIOLATED = {
    "nanochat:build": {"cache", "cache-state"},
    "llms_from_scratch:build_cached": {"causality", "cache", "cache-state"},
    "gpt_fast:build": {"gradient-directions", "input-gradients", "live-parameters"},
    "x_transformers:build": {"narrow-dtypes"},
}
PACKAGES = ("nanochat", "litgpt", "llms_from_scratch", "x_transformers", "cs336_basics")


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets put folders into the search path, and no peer is installed."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)


def place(target: str) -> str:
    file, callable_ = target.split(":")
    return f"{PEERS / file}.py:{callable_}"


def test_every_target_is_known_here() -> None:
    files = {path.stem for path in PEERS.glob("*.py")} - {"peer"}
    assert files == {target.split(":")[0] for target in REPOSITORIES}
    for path in PEERS.glob("*.py"):
        compile(path.read_text(), str(path), "exec")


@pytest.mark.parametrize("target", REPOSITORIES)
def test_without_the_peer_it_is_said_what_to_clone(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROOF_LM_PEERS", raising=False)
    with pytest.raises(TargetError) as refused:
        Source(place(target), 0).load()
    message = str(refused.value)
    assert f"git clone https://github.com/{REPOSITORIES[target]}, " in message
    assert "--arg path=DIR" in message
    assert "\n" not in message


@pytest.mark.parametrize("target", REPOSITORIES)
def test_a_folder_that_is_not_there_is_named(target: str, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    with pytest.raises(TargetError, match=f"there is no folder {missing}; git clone https://github.com/"):
        Source(place(target), 0, (f"path={missing}",)).load()


@pytest.mark.parametrize("target", REPOSITORIES)
def test_a_folder_without_the_peer_is_refused(target: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"cannot be imported \(.+\); git clone https://github.com/"):
        Source(place(target), 0, (f"path={tmp_path}",)).load()


@pytest.mark.skipif("PROOF_LM_PEERS" not in os.environ, reason="PROOF_LM_PEERS names no folder of checkouts")
@pytest.mark.parametrize("target", REPOSITORIES)
def test_the_peers_are_what_the_page_says(target: str, tmp_path: Path) -> None:
    file = tmp_path / "verification.json"
    command = [
        sys.executable,
        "-m",
        "proof_lm",
        "verify",
        place(target),
        "--level",
        "quick",
        "--json",
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 2 and "git clone" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert file.exists(), done.stderr
    contracts = json.loads(file.read_text())["contracts"]
    verdicts = {contract["name"]: contract["verdict"] for contract in contracts}
    violated = {name for name, verdict in verdicts.items() if verdict == "violated"}
    assert violated == VIOLATED.get(target, set()) & verdicts.keys()
    assert "inconclusive" not in verdicts.values()
