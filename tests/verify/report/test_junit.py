"""JUnit XML, read by a parser, and what CI systems look for in it."""

from xml.etree import ElementTree as ET

from proof_lm.verify.report import to_junit
from proof_lm.verify.verdict import Verification
from verify.report import samples


def suite(verification: Verification) -> ET.Element:
    root = ET.fromstring(to_junit(verification))
    assert root.tag == "testsuites"
    (found,) = root.iter("testsuite")
    return found


def outcome(case: ET.Element) -> list[str]:
    return [child.tag for child in case]


def test_one_case_for_each_contract_and_its_outcome() -> None:
    found = suite(samples.mixed())
    cases = {case.get("name"): outcome(case) for case in found.iter("testcase")}
    assert cases == {
        "oracle-logits": [],
        "causality": ["failure"],
        "prefix": ["error"],
        "rope": ["skipped"],
        "padding": ["error"],
    }
    assert [found.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["5", "1", "2", "1"]
    assert found.get("time") == "1.250"
    assert {case.get("name"): case.get("time") for case in found.iter("testcase")}["causality"] == "0.250"


def test_a_failure_says_what_moved_where() -> None:
    (failure,) = suite(samples.mixed()).iter("failure")
    assert failure.get("message") == "fused: max |change| = nan, must not exceed 1e-12"
    assert f"explicit: max |change| = 0.5, must be 0 exactly, at {samples.WHERE}\n" in str(failure.text)
    assert failure.get("type") == "violated"
    assert "smallest case: 1 row of 3 tokens" in str(failure.text)


def test_text_of_the_subject_is_escaped_and_fit_for_xml() -> None:
    text = to_junit(samples.mixed())
    assert "\x1b" not in text
    assert "\x00" not in text
    found = suite(samples.mixed())
    assert not list(found.iter("script"))
    classes = {case.get("classname") for case in found.iter("testcase")}
    assert classes == {f"a [bold] `name` | {samples.SCRIPT} \\x1b[31m\\u202e"}
    (skipped,) = found.iter("skipped")
    assert str(skipped.get("message")).startswith(f"nothing [is] *rotated* | {samples.SCRIPT}\\x00")
    assert f"diagnosis: behaves as {samples.SCRIPT}" in str(found.findtext("system-out"))


def test_what_holds_passes() -> None:
    found = suite(samples.sound())
    assert [found.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "0", "0", "1"]
