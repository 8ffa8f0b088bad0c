"""A verification as JUnit XML, which CI systems read."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from proof_lm.verify.report.words import evidence, headline, printable
from proof_lm.verify.verdict import ContractResult, Verdict, Verification

TAGS = {Verdict.VIOLATED: "failure", Verdict.INCONCLUSIVE: "error", Verdict.NOT_APPLICABLE: "skipped"}


def to_junit(verification: Verification) -> str:
    """One test case per contract, in the class of the target.

    Violated is a failure; inconclusive, and not decided, is an error, since neither may pass; not applicable is
    skipped, with the reason. Times are in seconds.
    """
    target, results, n_open = (
        printable(verification.target),
        verification.results,
        len(verification.undecided),
    )
    counts = {
        "tests": len(results) + n_open,
        "failures": verification.count(Verdict.VIOLATED),
        "errors": verification.count(Verdict.INCONCLUSIVE) + n_open,
        "skipped": verification.count(Verdict.NOT_APPLICABLE),
    }
    seconds = f"{sum(result.seconds for result in results):.3f}"
    attributes = {name: str(count) for name, count in counts.items()} | {"time": seconds}
    root = ET.Element("testsuites", attributes)
    suite = ET.SubElement(root, "testsuite", {"name": "proof-lm verify"} | attributes)
    properties = ET.SubElement(suite, "properties")
    for name, value in (("seed", str(verification.seed)), ("level", verification.level)):
        ET.SubElement(properties, "property", {"name": name, "value": value})
    for result in results:
        _add(suite, target, result)
    for name in verification.undecided:
        case = ET.SubElement(suite, "testcase", {"classname": target, "name": name, "time": "0.000"})
        ET.SubElement(
            case, "error", {"type": "not decided", "message": "the run ended before it was decided"}
        )
    said = [headline(verification)]
    if verification.diagnosis:
        said.append(f"diagnosis: {printable(verification.diagnosis)}")
    ET.SubElement(suite, "system-out").text = "\n".join(said)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add(suite: ET.Element, target: str, result: ContractResult) -> None:
    seconds = f"{result.seconds:.3f}"
    case = ET.SubElement(suite, "testcase", {"classname": target, "name": result.name, "time": seconds})
    if result.verdict is Verdict.HOLDS:
        return
    lines = [printable(line) for line in evidence(result)]
    message = lines[0] if lines else result.statement
    found = ET.SubElement(case, TAGS[result.verdict], {"type": result.verdict.value, "message": message})
    if result.verdict is not Verdict.NOT_APPLICABLE:
        found.text = "\n".join([result.statement, *lines])
