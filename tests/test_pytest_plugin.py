"""``pytest --proof-lm TARGET``, run in repositories made for it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import jaxtyping
import pytest

import proof_lm
from proof_lm.verify import at_level

pytest_plugins = ["pytester"]

MODEL = """
    import torch
    from torch import nn

    class Decoder(nn.Module):
        def __init__(self, masked):
            super().__init__()
            self.masked = masked
            self.tokens, self.places = nn.Embedding(13, 12), nn.Embedding(11, 12)
            self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
            self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 13)

        def forward(self, token_ids):
            n_tokens = token_ids.shape[1]
            x = self.tokens(token_ids) + self.places(torch.arange(n_tokens))
            hidden = torch.ones(n_tokens, n_tokens, dtype=torch.bool).triu(1) if self.masked else None
            return self.head(self.norm(x + self.attention(x, x, x, attn_mask=hidden, need_weights=False)[0]))

    def build():
        return Decoder(True)

    def build_leaky():
        return Decoder(False)

    def build_with(size):
        return Decoder(True)
"""
Run = Callable[..., pytest.RunResult]
FEW = "causality or window or determinism"
N = len(at_level("quick"))


@pytest.fixture(autouse=True)
def _shapes_unchecked(_shapes_checked: None) -> None:
    jaxtyping.config.update("jaxtyping_disable", True)  # as for all tests that verify


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """pytest with this plugin alone, whether or not its entry point is installed, beside the decoders."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("COLUMNS", "250")
    pytester.makepyfile(my_decoder=MODEL)

    def run(*arguments: str, own_process: bool = False) -> pytest.RunResult:
        pytest_in = pytester.runpytest_subprocess if own_process else pytester.runpytest
        return pytest_in("-p", "proof_lm.pytest_plugin", "--proof-lm-level", "quick", *arguments)

    return run


def test_the_plugin_imports_no_torch_and_does_nothing_unless_asked(
    run: Run, pytester: pytest.Pytester
) -> None:
    """In a process of its own: in this one torch is imported already."""
    pytester.makeconftest(
        """
        import sys

        def pytest_sessionfinish(session):
            assert "proof_lm.pytest_plugin" in sys.modules
            assert not {"torch", "numpy", "rich", "proof_lm.testing"} & set(sys.modules)
            assert not session.config.pluginmanager.has_plugin("proof_lm_targets")
            print("nothing was done")
        """
    )
    pytester.makepyfile(test_own="def test_own(): pass")
    pytester.syspathinsert(next(iter(proof_lm.__path__)).rpartition("/")[0])
    result = run("-s", "--strict-markers", "-W", "error", own_process=True)
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*nothing was done*"])
    assert "proof_lm" not in run("--markers").stdout.str()


def test_a_right_decoder_passes_without_any_test_file(run: Run) -> None:
    result = run("--proof-lm", "my_decoder:build", "-k", FEW, "-v")
    assert result.ret == 0
    result.assert_outcomes(passed=2, skipped=1, deselected=N - 3)
    result.stdout.fnmatch_lines(
        [
            f"*collected {N} items / {N - 3} deselected / 3 selected",
            "my_decoder:build::causality PASSED*",
            "my_decoder:build::window SKIPPED (not applicable: no window*",
            "my_decoder:build::determinism PASSED*",
        ]
    )


def test_a_faulty_decoder_fails_with_the_report_alone(run: Run) -> None:
    result = run("--proof-lm", "my_decoder.py:build_leaky", "-k", FEW)
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1, skipped=1, deselected=N - 3)
    result.stdout.fnmatch_lines(
        [
            "*_ my_decoder.py:build_leaky causality _*",
            "causality is violated: *moves position*",
            "*smallest case: 1 row of 2 tokens*",
            "FAILED my_decoder.py:build_leaky::causality - *ContractViolation: causality is*",
        ]
    )
    assert "pytest_plugin.py" not in result.stdout.str()


def test_the_first_failure_can_end_the_run(run: Run) -> None:
    result = run("--proof-lm", "my_decoder:build_leaky", "-x")
    assert result.ret == 1
    result.assert_outcomes(failed=1, skipped=2)  # the oracle's two do not apply, and causality is next


def test_junit_has_a_case_per_contract(run: Run, pytester: pytest.Pytester) -> None:
    run("--proof-lm", "my_decoder:build_leaky", "-k", FEW, "-p", "junitxml", "--junitxml", "junit.xml")
    suite = ET.parse(pytester.path / "junit.xml").getroot()[0]
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    cases = {case.get("name"): case for case in suite}
    assert list(cases) == ["causality", "window", "determinism"]
    assert {case.get("classname") for case in suite} == {"my_decoder:build_leaky"}
    failure, skipped = cases["causality"].find("failure"), cases["window"].find("skipped")
    assert failure is not None
    assert failure.text is not None
    assert "smallest case: 1 row of 2 tokens" in failure.text
    assert skipped is not None
    assert skipped.get("message") == "not applicable: no window is declared"


def test_several_targets_and_the_repositorys_own_tests_run_together(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_own="def test_causality(): pass")
    named = [
        "--proof-lm",
        "my_decoder:build",
        "--proof-lm",
        "my_decoder:build_leaky",
        "--proof-lm",
        "my_decoder:build",
    ]
    result = run(*named, "-k", "causality", "-v")
    assert [line.split(" ")[0] for line in result.outlines if "::" in line and "%" in line] == [
        "my_decoder:build::causality",
        "my_decoder:build_leaky::causality",
        "test_own.py::test_causality",
    ]
    run(*named, "-k", "causality", "-m", "proof_lm").assert_outcomes(passed=1, failed=1, deselected=2 * N - 1)
    run(*named, "-m", "not proof_lm").assert_outcomes(passed=1, deselected=2 * N)


def test_the_contracts_run_in_other_processes(run: Run, pytester: pytest.Pytester) -> None:
    pytester.syspathinsert(next(iter(proof_lm.__path__)).rpartition("/")[0])
    xdist = ["-p", "xdist.plugin", "-n", "1"]
    pytester.makeini("[pytest]\nproof_lm_expected_failures = causality: known")
    result = run(*xdist, "--proof-lm", "my_decoder:build_leaky", "-k", f"{FEW} or prefix", own_process=True)
    assert result.ret == 1
    result.assert_outcomes(passed=1, skipped=1, failed=1, xfailed=1)
    result.stdout.fnmatch_lines(["FAILED my_decoder:build_leaky::prefix - *ContractViolation: prefix is*"])


def test_expected_failures_are_strict(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\nproof_lm_expected_failures =\n    causality: an encoder: it may look ahead\n    cache: later"
    )
    leaky = run("--proof-lm", "my_decoder:build_leaky", "-k", FEW, "-rx")
    leaky.assert_outcomes(passed=1, xfailed=1, skipped=1, deselected=N - 3)
    leaky.stdout.fnmatch_lines(["XFAIL my_decoder:build_leaky::causality - *an encoder: it may look ahead"])
    right = run("--proof-lm", "my_decoder:build", "-k", "causality")
    right.assert_outcomes(failed=1, deselected=N - 1)
    right.stdout.fnmatch_lines(
        ["causality was expected to fail (an encoder*), and holds: expect it no longer"]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["my_decoder:missing"],
            "my_decoder has no 'missing'; it has Decoder, build, build_leaky, build_with",
        ),
        (["no_such:build"], "importing no_such raised ModuleNotFoundError: No module named 'no_such'"),
        (["nothing"], "no target 'nothing'"),
        (["my_decoder:build_with"], "missing a required argument: 'size'"),
        (
            ["my_decoder:build", "--proof-lm-level", "deep"],
            "no level named 'deep'; there are quick, standard, thorough",
        ),
        (
            ["my_decoder:build", "-o", "proof_lm_expected_failures=causalty: typo"],
            "no contract named 'causalty'",
        ),
        (
            ["my_decoder:build", "-o", "proof_lm_expected_failures=causality"],
            "proof_lm_expected_failures: a line must be `contract: reason`, got 'causality'",
        ),
    ],
)
def test_what_the_user_can_put_right_is_a_usage_error(run: Run, arguments: list[str], message: str) -> None:
    result = run("--proof-lm", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR: ")]
    assert message in line
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_warnings_as_errors_change_no_verdict(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        noisy="import warnings\nfrom my_decoder import Decoder\nwarnings.warn('import')\n"
        "class build(Decoder):\n"
        "    def __init__(self):\n        super().__init__(True)\n        warnings.warn('made')\n"
        "    def forward(self, token_ids):\n        warnings.warn('called')\n"
        "        return super().forward(token_ids)\n"
    )
    with pytest.warns(UserWarning, match="import|made|called"):
        result = run("--proof-lm", "noisy:build", "-k", "causality", "-W", "error")
    result.assert_outcomes(passed=1, warnings=1, deselected=N - 1)


def test_the_entry_point_names_this_module() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"proof_lm": "proof_lm.pytest_plugin"}
    code = "import sys, proof_lm.pytest_plugin; print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    source = str(next(iter(proof_lm.__path__))).rpartition("/")[0]
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.strip() == "[]"
