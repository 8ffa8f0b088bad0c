"""Copies of a module that share nothing with it."""

from __future__ import annotations

import copy
from types import CellType, FunctionType
from typing import Any, TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def copied(module: Module) -> Module:
    """A deep copy, in which functions kept as attributes call the copy's parts too.

    ``copy.deepcopy`` shares functions, and with them what they have captured: the lambda of minGPT's block,
    ``self.mlpf = lambda x: m.c_proj(m.c_fc(x))``, would go on calling the original's layers. Such a function is made
    anew, with the copies of what it has captured.
    """
    memo: dict[int, Any] = {}
    made = copy.deepcopy(module, memo)
    for part in made.modules():
        for name, value in vars(part).items():
            if isinstance(value, FunctionType) and value.__closure__:
                vars(part)[name] = _rebound(value, memo)
    return made


def _rebound(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    cells = []
    for cell in function.__closure__ or ():
        try:
            captured = cell.cell_contents
        except ValueError:  # nothing was ever put into it
            cells.append(cell)
            continue
        cells.append(CellType(memo.get(id(captured), captured)))
    rebound = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells)
    )
    rebound.__kwdefaults__ = function.__kwdefaults__
    return rebound
