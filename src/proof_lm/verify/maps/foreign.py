"""What can be seen of a foreign module without running it: its parameters, and what its attributes declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from proof_lm.config import Activation
from proof_lm.errors import MapError

Shape = tuple[int, ...]
CONFIGS = ("config", "cfg", "args", "hparams")  # attributes that hold what a constructor was given


class Foreign:
    """A module of somebody else's.

    Args:
        module: any; nothing in it is changed or run.

    Attributes:
        shapes: of every parameter, by its name in ``named_parameters()``; one that several modules share
            has the name that comes first.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.shapes: dict[str, Shape] = {}
        self._own_names: dict[str, str] = {}
        first: dict[int, str] = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            own = first.setdefault(id(parameter), name)
            self._own_names[name] = own
            self.shapes[own] = tuple(parameter.shape)

    def __contains__(self, name: str) -> bool:
        return name in self._own_names

    def own_name(self, name: str) -> str:
        """The name in ``shapes`` of a parameter that may be shared; a name of no parameter stays as it is."""
        return self._own_names.get(name, name)

    def shape(self, name: str) -> Shape:
        """The shape of a parameter.

        Raises:
            MapError: there is none of that name, or it is a single number.
        """
        if name not in self:
            raise MapError(f"there is no parameter {name}")
        shape = self.shapes[self.own_name(name)]
        if not shape:
            raise MapError(f"{name} is a single number")
        return shape

    def config(self, *names: str) -> dict[str, Any]:
        """The fields of the ``config`` attribute, which may be an object or a mapping, with these among them.

        Raises:
            MapError: there is no such attribute, or it lacks some; the message names them all.
        """
        config = getattr(self.module, "config", None)
        if config is None:
            raise MapError("the module has no config attribute")
        fields = _fields(config)
        missing = [name for name in names if fields.get(name) is None]
        if missing:
            raise MapError(f"its config lacks {', '.join(missing)}")
        return fields

    def declared(self, *names: str) -> int | float | None:
        """The number that attributes of these names hold, anywhere among the modules and their configs.

        Raises:
            MapError: they do not all hold the same.
        """
        found: dict[int | float, str] = {}
        for path, module in self.module.named_modules():
            for where, value in _numbers(module, names):
                found.setdefault(value, f"{path}.{where}" if path else where)
        return _the_one(found)

    def declared_count(self, *names: str) -> int | None:
        """The same, for a number that must be whole.

        Raises:
            MapError: they do not all hold the same, or it is not whole.
        """
        value = self.declared(*names)
        if value is None or isinstance(value, int):
            return value
        raise MapError(f"{' or '.join(names)} must be a whole number, the module declares {value}")

    def activation(self, default: Activation) -> Activation:
        """That of the activation layers among the modules, or the default where there is none.

        Raises:
            MapError: there are different ones.
        """
        found = {_activation_of(module): path for path, module in self.module.named_modules()}
        known = {activation: path for activation, path in found.items() if activation is not None}
        if len(known) > 1:
            raise MapError(f"it has different activations: {', '.join(f'{known[a]} ({a})' for a in known)}")
        return next(iter(known), default)

    def norm_eps(self, norms: list[str], default: float) -> float:
        """The ``eps`` that these modules declare, or the default where none of them does.

        Raises:
            MapError: they do not all declare the same.
        """
        found: dict[int | float, str] = {}
        for path in norms:
            for where, value in _numbers(self.module.get_submodule(path), ("eps", "variance_epsilon")):
                found.setdefault(value, f"{path}.{where}")
        eps = _the_one(found)
        return default if eps is None else float(eps)


def _activation_of(module: nn.Module) -> Activation | None:
    if isinstance(module, nn.GELU):
        return "gelu" if module.approximate == "none" else "gelu_tanh"
    named: dict[str, Activation] = {"ReLU": "relu", "SiLU": "silu", "NewGELU": "gelu_tanh"}
    return named.get(type(module).__name__)


def _numbers(module: nn.Module, names: tuple[str, ...]) -> Iterator[tuple[str, int | float]]:
    attributes = vars(module)
    holders = {"": attributes}
    holders |= {f"{name}.": _fields(attributes[name]) for name in CONFIGS if name in attributes}
    for prefix, fields in holders.items():
        for name in names:
            value = fields.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield prefix + name, value


def _fields(config: object) -> dict[str, Any]:
    return dict(config) if isinstance(config, Mapping) else dict(getattr(config, "__dict__", {}))


def _the_one(found: dict[int | float, str]) -> int | float | None:
    if len(found) > 1:
        given = " and ".join(f"{where} = {value}" for value, where in found.items())
        raise MapError(f"the module declares both {given}: which one holds is unclear")
    return next(iter(found), None)
