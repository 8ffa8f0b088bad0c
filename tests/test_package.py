"""The public surface: what is listed is there, documented, and cheap to import."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import proof_lm

MODULES = ["proof_lm", "proof_lm.model", "proof_lm.functional", "proof_lm.generate", "proof_lm.oracle"]
every_module = pytest.mark.parametrize("name", MODULES)


def run(program: str) -> str:
    """What the program prints, in a fresh interpreter."""
    path = str(next(iter(proof_lm.__path__))).rpartition("/")[0]
    program = f"import sys; sys.path.insert(0, {path!r}); {program}"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


@every_module
def test_every_listed_name_is_there_and_the_list_is_sorted(name: str) -> None:
    """Excludes a name that was moved or misspelt in __all__."""
    module = import_module(name)
    assert module.__all__ == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    for listed in module.__all__:
        assert getattr(module, listed) is not None
    assert set(module.__all__) <= set(dir(module))


@every_module
def test_everything_public_that_can_be_seen_is_listed(name: str) -> None:
    """Excludes a function added to a package and forgotten in __all__."""
    module = import_module(name)
    visible = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", "").startswith("proof_lm")
    }
    assert visible <= set(module.__all__)


@every_module
def test_every_public_function_and_class_says_what_it_does(name: str) -> None:
    module = import_module(name)
    assert module.__doc__
    for listed in module.__all__:
        value = getattr(module, listed)
        if inspect.isfunction(value):
            assert value.__doc__, listed
        if inspect.isclass(value):
            assert value.__doc__, listed
            for method, function in vars(value).items():
                if (
                    inspect.isfunction(function)
                    and not method.startswith("_")
                    and value.__module__.startswith("proof_lm")
                ):
                    assert function.__doc__ or method == "forward", f"{listed}.{method}"


def test_importing_the_package_imports_neither_torch_nor_numpy() -> None:
    heavy = "sorted({'torch', 'numpy', 'jaxtyping'} & set(sys.modules))"
    assert run(f"import proof_lm; print({heavy})") == "[]"
    assert run(f"import proof_lm; proof_lm.DecoderConfig; proof_lm.preset; print({heavy})") == "[]"
    assert "torch" in run(f"import proof_lm; proof_lm.ProofLM; print({heavy})"), "the check cannot fail"


def test_public_names_load_on_first_use() -> None:
    assert run(
        "import proof_lm; print(proof_lm.DecoderConfig.__name__, 'DecoderConfig' in vars(proof_lm))"
    ) == ("DecoderConfig True")
    assert run("from proof_lm import ProofLM; print(ProofLM.__module__)") == "proof_lm.model.decoder"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'proof_lm' has no attribute 'Model'"):
        _ = proof_lm.Model


def test_the_version_is_that_of_the_distribution() -> None:
    """Read from pyproject.toml, since the package may run without being installed."""
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert proof_lm.__version__ == project["project"]["version"]
