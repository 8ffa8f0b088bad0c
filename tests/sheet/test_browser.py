"""The page in a real browser: on one sheet of paper, on a phone, in the dark, alone."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proof_lm.presets import preset
from proof_lm.sheet import Machine, Sheet, make_plan
from proof_lm.sheet.report import conventions, dimension_line, sheet_tables, summary, to_html
from proof_lm.sheet.report.plot import plot

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tools:
        started = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture(scope="module", params=["gpt2", "llama-3.1-8b"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The longest pages: with biases and learned positions, and with a plan."""
    sheet = Sheet(request.param, preset(request.param), 1, 1024, "bfloat16")
    machine = Machine(8, 989e12, 0.4, 2.0)
    plan = make_plan(
        sheet.config,
        1,
        1024,
        "bfloat16",
        devices=8,
        parallel="fsdp",
        machine=machine,
        bandwidth=3e12,
        budget=1e6,
    )
    path = tmp_path_factory.mktemp("sheet") / "sheet.html"
    lead, tables = [summary(sheet), dimension_line(sheet)], sheet_tables(sheet, plan)
    path.write_text(
        to_html(sheet.name, lead, tables, conventions([sheet]), command="proof-lm sheet", plot=plot(sheet)),
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_it_prints_on_one_sheet_of_paper(browser: Any, page: Path, paper: str) -> None:
    opened = browser.new_page()
    opened.goto(page.as_uri())
    document = opened.pdf(format=paper)
    opened.close()
    assert len(re.findall(rb"/Type\s*/Page[^s]", document)) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_is_quiet_and_does_not_scroll_sideways(browser: Any, page: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    opened = context.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda asked: None if asked.url.startswith("file:") else said.append(asked.url))
    opened.goto(page.as_uri())
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert [text for text in said if not text.startswith("data:")] == []
    assert opened.get_by_role("main").count() == 1
    assert opened.get_by_role("img").get_attribute("aria-labelledby") == "plot plot-says"
    regions = opened.get_by_role("region")
    assert regions.count() >= 9
    context.close()
