"""What every report says, in the words that they share."""

from __future__ import annotations

import re
import unicodedata

from proof_lm.verify.verdict import ContractResult, Measurement, Verdict, Verification

_HIDDEN = re.compile(r"[^\n\t\x20-\x7e]")


def printable(text: str) -> str:
    r"""The text with what cannot be seen written out, as ``\x1b``: a subject's text drives no terminal, reverses no
    line, and is fit for XML."""
    return _HIDDEN.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    character = match.group()
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp")
    return character.encode("unicode_escape").decode("ascii") if hidden else character


def of_verdict(verification: Verification, verdict: Verdict) -> list[ContractResult]:
    """The results with this verdict."""
    return [result for result in verification.results if result.verdict is verdict]


def headline(verification: Verification) -> str:
    """What came out, in one line, the worst first."""
    n_violated, n_holding = verification.count(Verdict.VIOLATED), verification.count(Verdict.HOLDS)
    others = [
        _counted(verification.count(Verdict.INCONCLUSIVE), "is inconclusive", "are inconclusive"),
        _counted(verification.count(Verdict.NOT_APPLICABLE), "does not apply", "do not apply"),
        _counted(len(verification.undecided), "was not decided", "were not decided"),
    ]
    if n_violated:
        parts = [
            _counted(n_violated, "contract is violated", "contracts are violated"),
            _counted(n_holding, "holds", "hold"),
            *others,
        ]
    elif verification.exit_status == 0:
        held = (
            "the one contract that applies holds"
            if n_holding == 1
            else f"all {n_holding} contracts that apply hold"
        )
        parts = [held, *others]
    else:
        parts = ["nothing is violated, but not all is decided", _counted(n_holding, "holds", "hold"), *others]
        if not n_holding:
            parts[:2] = ["nothing was shown to hold"]
    return ", ".join(part for part in parts if part)


def totals(verification: Verification) -> str:
    """How many contracts got which verdict, how many were decided and in what time, and which were not."""
    seconds = sum(result.seconds for result in verification.results)
    shown = [verdict for verdict in Verdict if verdict is Verdict.HOLDS or verification.count(verdict)]
    counts = ", ".join(f"{verification.count(verdict)} {verdict.value}" for verdict in shown)
    n_decided, n_planned = len(verification.results), len(verification.planned)
    line = f"{counts}; {n_decided} of {n_planned} contracts decided in {seconds:.1f} s"
    if verification.undecided:
        line += f"; not decided: {', '.join(verification.undecided)}"
    return line


def figures(worst: Measurement | None) -> tuple[str, str]:
    """The number, and what it was held against; empty where nothing was measured."""
    if worst is None:
        return "", ""
    if worst.bound is None:
        return f"{worst.measured:.1e}", "> 0"
    exact = worst.bound.rounding == 0.0
    measured = "0" if worst.measured == 0.0 else f"{worst.measured:.1e}"
    return measured, "0 (exact)" if exact else f"{worst.bound.rounding:.1e}"


def sentence(measurement: Measurement) -> str:
    """What was measured on which path, by how much, what it had to be, and where it was."""
    bound = measurement.bound
    wanted = "must exceed 0" if bound is None else f"must not exceed {bound.rounding:.2g}"
    if bound is not None and bound.rounding == 0.0:
        wanted = "must be 0 exactly"
    where = f", at {measurement.where}" if measurement.where else ""
    path = "" if measurement.path == "-" else f"{measurement.path}: "
    return f"{path}{measurement.quantity} = {measurement.measured:.3g}, {wanted}{where}"


def evidence(result: ContractResult, n_shown: int = 3, *, rest: bool = True) -> list[str]:
    """Why a contract did not hold: what was raised, the worst measurements, how many there are beside those where
    ``rest`` is to be mentioned, the smallest case."""
    lines = [result.reason] if result.reason else []
    unsound = [m for m in result.measurements if m.verdict is not Verdict.HOLDS]
    worst_first = sorted(unsound, key=lambda m: m.severity, reverse=True)
    lines += [sentence(m) for m in worst_first[:n_shown]]
    if rest and len(unsound) > n_shown:
        lines.append(f"and {len(unsound) - n_shown} more; --json FILE writes them all")
    if result.smallest:
        lines.append(f"smallest case: {result.smallest}")
    return lines


def reasons(verification: Verification) -> dict[str, list[str]]:
    """Why contracts do not apply, with their names."""
    names: dict[str, list[str]] = {}
    for result in of_verdict(verification, Verdict.NOT_APPLICABLE):
        names.setdefault(result.reason, []).append(result.name)
    return names


def next_steps(verification: Verification, *, drawn: bool = False) -> list[tuple[str, str]]:
    """What to type next, or to add to the command, and what it gives; nothing where all that applies holds.

    ``drawn``: the reader has the page with pictures already.
    """
    steps = []
    violated = of_verdict(verification, Verdict.VIOLATED)
    unsure = of_verdict(verification, Verdict.INCONCLUSIVE)
    if violated:
        name = violated[0].name
        steps.append((f"proof-lm verify --explain {name}", "how it is measured, which faults it rejects"))
        if not drawn:
            steps.append(("--html FILE", "a page that shows which token moved which position"))
        unmapped = {"oracle-logits"} & {name for names in reasons(verification).values() for name in names}
        if unmapped and not verification.diagnosis:
            steps.append(("--map FILE", "the oracle then says where it goes wrong; see docs/verify.md"))
    if unsure:
        name = unsure[0].name
        steps.append((f"--only {name} --seed {verification.seed + 1}", "the same with other inputs"))
    if verification.undecided:
        name = verification.undecided[0]
        steps.append((f"--only {name},...", "judges by what was not decided, and nothing else"))
    return steps


def _counted(n: int, one: str, many: str) -> str:
    return "" if n == 0 else f"{n} {one if n == 1 else many}"
