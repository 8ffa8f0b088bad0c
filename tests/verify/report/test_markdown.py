"""The summary of a CI job, read by a Markdown parser that is not ours."""

from html.parser import HTMLParser

from markdown_it import MarkdownIt

from proof_lm.verify.report import to_markdown
from verify.report import samples


class Seen(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(MarkdownIt("commonmark").enable("table").render(markdown))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def test_violations_come_before_the_table() -> None:
    markdown = to_markdown(samples.mixed())
    assert markdown.startswith("## proof-lm verify: 1 contract is violated, 1 holds")
    parts = [
        "### causality: violated",
        "### prefix: inconclusive",
        "**diagnosis:**",
        "**next:**",
        "| contract |",
    ]
    places = [markdown.index(part) for part in parts]
    assert places == sorted(places)
    assert "4 of 5 contracts decided in 1.2 s; not decided: padding" in markdown


def test_the_table_has_a_row_for_each_contract_and_five_columns() -> None:
    seen = Seen(to_markdown(samples.mixed()))
    assert seen.tags.count("table") == 1
    assert (seen.tags.count("th"), seen.tags.count("td")) == (5, 4 * 5)
    assert "**" not in seen.text


def test_text_of_the_subject_stays_text() -> None:
    seen = Seen(to_markdown(samples.mixed()))
    assert not {"script", "a", "img"} & set(seen.tags)
    assert samples.SCRIPT in seen.text
    assert f"a [bold] `name` | {samples.SCRIPT} \\x1b[31m\\u202e, seed 0, standard" in seen.text
    assert f"rope: nothing [is] *rotated* | {samples.SCRIPT}\\x00 & https://example.org @all" in seen.text
    assert "max |change| = 0.5, must be 0 exactly, at row 1: token 3 moves position 2" in seen.text


def test_links_and_mentions_are_taken_apart() -> None:
    markdown = to_markdown(samples.mixed())
    assert "https://" not in markdown
    assert "@all" not in markdown


def test_what_holds_is_short() -> None:
    markdown = to_markdown(samples.sound())
    assert markdown.startswith("## proof-lm verify: all 2 contracts that apply hold, 1 does not apply")
    assert "violated" not in markdown
    assert "**next:**" not in markdown
