"""The page in a real browser: quiet, alone, readable on a phone, by keyboard, and in the dark."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proof_lm.verify import CONTRACTS, MUTANTS, ProofSubject, verify
from proof_lm.verify.influence import measure_influences
from proof_lm.verify.report import to_html
from verify.report import samples
from verify.report.test_page import MATRIX

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tools:
        started = tools.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A real violation, and every kind of mischief."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "no-causal-mask")
    subject = ProofSubject(
        "src/a_very_long_package_name/models/decoder_without_its_mask.py:build", mutant.build()
    )
    some = [contract for contract in CONTRACTS if contract.name in ("input-gradients", "tying")]
    leaking = verify(subject, some, level="quick")
    leaking.influences = measure_influences(subject, 0)
    folder = tmp_path_factory.mktemp("pages")
    written = {}
    for name, verification in (("leaking", leaking), ("mischief", samples.mixed())):
        written[name] = folder / f"{name}.html"
        html = to_html(verification, command=f"proof-lm verify {verification.target}", matrix=MATRIX)
        written[name].write_text(html, encoding="utf-8")
    return written


class Visit:
    """An open page, with what it asked for and complained of."""

    def __init__(self, browser: Any, path: Path, size: dict[str, int], scheme: str) -> None:
        self.context = browser.new_context(viewport=size, color_scheme=scheme)
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(path.as_uri())
        self.page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")


@pytest.mark.parametrize("name", ["leaking", "mischief"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_quiet_alone_and_fits(
    browser: Any, pages: dict[str, Path], name: str, size: dict[str, int], scheme: str
) -> None:
    visit = Visit(browser, pages[name], size, scheme)
    assert visit.asked == [pages[name].as_uri()]
    assert visit.complaints == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert visit.page.evaluate(_POOR_CONTRAST) == []
    red, green, blue = visit.page.evaluate(_BACKGROUND)
    assert (max(red, green, blue) < 64) == (scheme == "dark")
    visit.context.close()


def test_landmarks_and_headings_are_announced(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["leaking"], DESKTOP, "light")
    for role in ("banner", "main", "contentinfo"):
        assert visit.page.get_by_role(role).count() == 1, role
    assert visit.page.get_by_role("navigation", name="On this page").count() == 1
    assert visit.page.get_by_role("heading", level=1).count() == 1
    assert visit.page.get_by_role("region", name="Which token moves which position").count() == 1
    assert visit.page.get_by_role("img", name="Leak: 66 of 66 cells of the future are not 0").count() == 4
    visit.context.close()


def test_the_keyboard_goes_from_top_to_bottom(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["leaking"], PHONE, "light")
    keyboard = visit.page.keyboard
    keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.textContent") == "Skip to the result"
    assert visit.page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    keyboard.press("Enter")
    assert visit.page.evaluate("document.activeElement.id") == "main"
    tops, names = [], []
    for _ in range(7):
        keyboard.press("Tab")
        names.append(visit.page.evaluate("document.activeElement.tagName"))
        tops.append(visit.page.evaluate("document.activeElement.getBoundingClientRect().top + scrollY"))
    assert tops == sorted(tops)
    assert {"A", "SUMMARY", "DIV"} >= set(names) >= {"A", "SUMMARY"}
    visit.page.locator("#contract-input-gradients > summary").focus()
    keyboard.press("Enter")
    assert visit.page.locator("#contract-input-gradients").get_attribute("open") is None
    visit.page.get_by_role("link", name="All that was measured of input-gradients").click()
    assert visit.page.locator("#contract-input-gradients").get_attribute("open") is not None
    visit.context.close()


_BACKGROUND = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)"
_POOR_CONTRAST = """
() => {
  const channels = colour => (colour.match(/[0-9.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => [r, g, b]
    .map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = channels(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("title")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [channels(element.closest("svg") ? style.fill : style.color), ground(element)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([walker.currentNode.data.trim(), ratio]);
  }
  return poor;
}
"""
