"""The page of the zoo in a real browser: it fits a phone, in the dark too, and the table scrolls by keyboard."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from verify.report.test_browser import _POOR_CONTRAST, CHROMIUM, DESKTOP, FLAGS, PHONE, Visit, playwright
from verify.zoo.test_page import entry, html, leak, mixed

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tools:
        started = tools.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Rows too wide for a phone: a name that cannot be broken."""
    unbroken = entry("a" * 60, leak("causality"))
    file = tmp_path / "zoo.html"
    file.write_text(html([*mixed(), unbroken], "LateForCausalLM"), encoding="utf-8")
    return file


@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "dark"), (PHONE, "light"), (DESKTOP, "dark")])
def test_it_is_quiet_alone_and_fits(browser: Any, page: Path, size: dict[str, int], scheme: str) -> None:
    visit = Visit(browser, page, size, scheme)
    assert visit.asked == [page.as_uri()]
    assert visit.complaints == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert visit.page.evaluate(_POOR_CONTRAST) == []
    visit.context.close()


def test_the_table_scrolls_by_keyboard(browser: Any, page: Path) -> None:
    visit = Visit(browser, page, PHONE, "light")
    visit.page.get_by_role("region", name="Table of classes by backend").focus()
    for _ in range(100):
        visit.page.keyboard.press("ArrowRight")
        if visit.page.evaluate("document.activeElement.scrollLeft") > 0:
            break
        visit.page.wait_for_timeout(20)  # milliseconds, in which the browser draws
    else:
        pytest.fail("it does not scroll")
    assert visit.page.evaluate("scrollX") == 0
    visit.context.close()
