"""The page, read by a parser: what it says, that nothing of the subject becomes markup, that it needs nothing else."""

import re
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise

import pytest

from proof_lm.verify.report import ReportError, to_html
from proof_lm.verify.report.picture import pictures
from proof_lm.verify.verdict import Influence
from verify.report import samples

MATRIX = {
    "format": "proof-lm/kill-matrix",
    "version": 1,
    "contracts": ["causality", "tying"],
    "rows": [
        {
            "name": "no-causal-mask",
            "outcome": "killed",
            "what": samples.SCRIPT,
            "ids": [],
            "source": "",
            "verdicts": {"causality": "violated", "tying": "holds"},
        }
    ],
}
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Elements with attributes and text, and whether every one is closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(data for tag, data in self.texts if tag not in ("style", "title")).split())


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(to_html(samples.mixed(), command=f"proof-lm verify {samples.SCRIPT}", matrix=MATRIX))


def test_it_says_what_came_out_and_what_is_wrong(page: Page) -> None:
    order = [
        "1 contract is violated, 1 holds",
        "The future leaks on path explicit: replacing token 2 moves position 0 by 0.12.",
        "causality ✕ violated No token moves an earlier one.",
        "fused: max |change| = nan, must not exceed 1e-12",
        "smallest case: 1 row of 3 tokens",
        "prefix ? inconclusive",
        "Diagnosis behaves as",
        "proof-lm verify --explain causality",
        "Which token moves which position",
        "Path explicit ✕ leaks",
        "Leak: 1 of 3 cells of the future are not 0. The worst: replacing token 2 moves position 0 by 0.12.",
        "What each head attends to",
        "All contracts 1 holds",
        "4 measurements in 0.25 s",
        "Not applicable rope",
        "Not decided padding",
        "Kill matrix Planted faults",
        "This run command",
        "proof-lm verify <script>",
        "torch",
    ]
    places = [page.text.find(part) for part in order]
    assert -1 not in places, dict(zip(order, places, strict=True))
    assert places == sorted(places)


def test_text_of_the_subject_stays_text(page: Page) -> None:
    assert not page.attributes("script")
    for said in (samples.WHERE, f"| {samples.SCRIPT} \\x1b[31m\\u202e", f"*rotated* | {samples.SCRIPT}\\x00"):
        assert said in page.text
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_it_needs_nothing_else(page: Page) -> None:
    for _, attributes in page.elements:
        for name in ("href", "src", "srcset", "action", "xlink:href"):
            assert re.match(r"#|data:,$", attributes.get(name) or "#")
    (style,) = [data for tag, data in page.texts if tag == "style"]
    assert "url(" not in style
    assert "@import" not in style
    policy = [meta["content"] for meta in page.attributes("meta") if "http-equiv" in meta]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_it_can_be_found_one_s_way_in_without_seeing_it(page: Page) -> None:
    tags = [tag for tag, _ in page.elements]
    assert [tags.count(tag) for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [str(link["href"]) for link in page.attributes("a")]
    assert links[0] == "#main"
    assert {link[1:] for link in links} <= set(ids)
    assert tags.count("caption") == tags.count("table") > 1
    assert all("scope" in cell for cell in page.attributes("th"))
    drawn = [svg for svg in page.attributes("svg") if svg.get("aria-hidden") != "true"]
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in drawn)


def test_a_sound_run_is_short_of_all_that(page: Page) -> None:
    text = Page(to_html(samples.sound(), command="proof-lm verify")).text
    assert "all 2 contracts that apply hold" in text
    for absent in ("What is wrong", "Diagnosis", "Which token", "Kill matrix", "violated"):
        assert absent not in text


def test_a_leak_elsewhere_than_in_the_picture_is_said() -> None:
    verification = samples.mixed()
    row = ((1.0, 1.0), (0.0, 1.0))
    verification.influences = (Influence("explicit", (4, 9), row, row),)
    text = Page(to_html(verification, command="")).text
    assert "No picture shows a leak, but causality found one in another way of calling" in text


def test_what_is_no_kill_matrix_is_refused() -> None:
    with pytest.raises(ReportError, match="proof-lm mutants --json FILE"):
        to_html(samples.sound(), command="", matrix={"format": "proof-lm/verification"})


def test_a_picture_tells_leaks_zeros_and_shades_apart() -> None:
    moved, gradients = pictures(samples.leaking())
    kinds = {(cell.t, cell.k): (cell.kind, cell.shade) for cell in moved.cells}
    assert kinds == {
        (0, 0): ("passes", 5),
        (0, 1): ("zero", 0),
        (0, 2): ("leak", 4),
        (1, 0): ("blind", 0),
        (1, 1): ("passes", 5),
        (1, 2): ("zero", 0),
        (2, 0): ("passes", 5),
        (2, 1): ("passes", 2),
        (2, 2): ("passes", 5),
    }
    assert moved.leaks
    assert "Not reached: 1 of 6 cells" in moved.says
    assert gradients.says == "No leak: all 3 cells of the future are exactly 0."


def contrast(one: str, other: str) -> float:
    """(L1 + 0.05) / (L2 + 0.05), L the relative luminance. Source: WCAG 2.2."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def palettes() -> list[dict[str, str]]:
    folder = resources.files("proof_lm.verify.report").joinpath("templates")
    css = folder.joinpath("page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block)) for block in blocks]


def test_a_known_contrast() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("palette", palettes(), ids=["light", "dark"])
def test_colours_can_be_told_apart(palette: dict[str, str]) -> None:
    for text in ("ink", "soft", "good", "bad", "unsure", "link"):
        for ground in ("paper", "wash", "tint-good", "tint-bad", "tint-unsure"):
            assert contrast(palette[text], palette[ground]) >= 4.5, (text, ground)
    assert contrast(palette["on"], palette["bad"]) >= 4.5
    # what is no text needs 3
    assert contrast(palette["cross"], palette["leak"]) >= 3
    assert contrast(palette["leak"], palette["wash"]) >= 3
