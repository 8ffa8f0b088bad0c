"""What the oracle exports, and what it must not import."""

import subprocess
import sys

import proof_lm.oracle


def test_exports_are_sorted_and_functions_win_over_submodules_of_their_name() -> None:
    assert sorted(proof_lm.oracle.__all__) == proof_lm.oracle.__all__
    for name in proof_lm.oracle.__all__:
        assert callable(getattr(proof_lm.oracle, name)), name


def test_importing_the_oracle_imports_neither_torch_nor_the_model() -> None:
    program = "import sys, proof_lm.oracle; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "proof_lm.oracle.decoder" in modules  # the list is a real one
    assert not [name for name in modules if name.split(".")[0] in ("torch", "scipy")]
    ours = {name.split(".")[1] for name in modules if name.startswith("proof_lm.")}
    assert ours <= {"oracle", "config", "errors"}
