"""Start-up of a test run in which a fault is planted: Python imports this by itself when the folder is on PYTHONPATH.

It needs the standard library only, so that start-up stays cheap. What plants is imported once the module that holds
the decoder has been.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType

OURS = "proof_lm.model"


class Planter(MetaPathFinder):
    """Finds one module as everybody else would, and plants in it once it is there."""

    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, loaded by us; None for every other module.

        Who came before us, as pytest's own hook does, would take the module first: so we go to the front.
        """
        if fullname != self.module:
            if sys.meta_path[0] is not self:
                sys.meta_path.remove(self)
                sys.meta_path.insert(0, self)
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = PlantingLoader(spec.loader)
        return spec


class PlantingLoader(Loader):
    """Loads as the module's own loader does, then plants."""

    def __init__(self, own: Loader) -> None:
        self.own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the own loader makes it."""
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module with its own loader, which tracebacks and resources ask for its source."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.own
        self.own.exec_module(module)
        from proof_lm.verify.suite.planting import plant

        plant(module)


def start() -> None:
    """Waits for the decoder's module, and lets the ``sitecustomize`` that this one stands before run too."""
    here = Path(__file__).parent
    place = os.environ.get("PROOF_LM_SUITE_IN", "")
    sys.meta_path.insert(0, Planter(place.partition(":")[0] or OURS))
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry) != here]
    shadowed = PathFinder.find_spec("sitecustomize", sys.path)
    if shadowed is None or shadowed.loader is None:
        return
    module = module_from_spec(shadowed)
    sys.modules["sitecustomize"] = module
    shadowed.loader.exec_module(module)


if "PROOF_LM_SUITE_EVENTS" in os.environ:
    start()
