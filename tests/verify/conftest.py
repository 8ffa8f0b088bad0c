"""A verification makes thousands of small calls, whose shapes the tests of model and functional have checked."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture(autouse=True, scope="package")
def _shapes_unchecked() -> Iterator[None]:
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
