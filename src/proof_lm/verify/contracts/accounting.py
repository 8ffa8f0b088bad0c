"""The number of parameters, from the config alone and from the model."""

from collections.abc import Iterator

from proof_lm import sheet
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Measurement


def check_accounting(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The closed formula against the elements of the unique registered parameters; what the model reports
    of itself against the same; and each tensor's name and shape against the sheet's table."""
    registered = {id(parameter): parameter for parameter in subject.native.parameters()}
    elements = sum(parameter.numel() for parameter in registered.values())
    formula = sheet.parameter_count(subject.config)
    yield Measurement(
        "-", "|registered - closed formula|", float(abs(elements - formula)), EXACT, f"{formula:,}"
    )
    reported = getattr(subject.native, "parameter_count", None)
    if isinstance(reported, int):
        off = float(abs(reported - elements))
        yield Measurement("-", "|reported - registered|", off, EXACT, f"{elements:,}")
    if not subject.can("parts"):
        return
    table = {spec.name: tuple(spec.shape) for spec in sheet.tensors(subject.config)}
    found = {name: tuple(parameter.shape) for name, parameter in subject.native.named_parameters()}
    wrong = sorted(name for name in table.keys() | found.keys() if table.get(name) != found.get(name))
    where = ", ".join(f"{name} {found.get(name)} for {table.get(name)}" for name in wrong[:3])
    yield Measurement("-", "tensors unlike the sheet's table", float(len(wrong)), EXACT, where)


ACCOUNTING = Contract(
    "parameter-count",
    "The closed formula's parameter count equals the unique registered parameters.",
    frozenset({"config"}),
    check_accounting,
    level="quick",
    once=True,
)
