"""Pages are short, and so are their sentences on average; no single sentence is counted."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
APPENDIX = {"theory", "reproduction"}  # proofs, and every number of the paper run again
PAGES = [page for page in sorted(ROOT.glob("docs/*.md")) if page.stem not in APPENDIX]
OTHERS = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")]

FENCE = re.compile(r"^ *```\w*\n.*?^ *```$", re.MULTILINE | re.DOTALL)
MADE = re.compile(r"<!-- (.+?) -->.*?<!-- /\1 -->", re.DOTALL)  # python -m reproduction.tables
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
LETTER = re.compile(r"[^\W\d_]")


def text_of(page: str) -> str:
    """A page without code, tables that a program makes, and addresses."""
    return LINK.sub(r"\1", MADE.sub("", FENCE.sub("\n", page)))


def words(page: str) -> int:
    """How many words a page has: whatever has a letter."""
    return sum(LETTER.search(word) is not None for word in text_of(page).split())


def sentences(page: str) -> list[str]:
    """The sentences of a page's paragraphs and lists: no tables, headings or pictures."""
    lines = (re.sub(r"^(- |\d+\. )", "\n", line.strip()) for line in text_of(page).splitlines())
    starts = re.compile(r"(#|\||!|<!--)")
    said = "\n".join("" if starts.match(line) else line for line in lines)
    paragraphs = re.split(r"\n\s*\n", said)
    parts = (re.split(r"(?<=[.!?])\s+", paragraph) for paragraph in paragraphs)
    return [part for each in parts for part in each if LETTER.search(part)]


def mean_length(page: str) -> float:
    lengths = [len(sentence.split()) for sentence in sentences(page)]
    return sum(lengths) / len(lengths)


def test_the_readme_is_read_in_three_minutes() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    assert mean_length(text) <= 16


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.stem)
def test_a_page_is_read_in_one_go(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert words(text) <= 1500
    assert mean_length(text) <= 17


def test_sentences_are_told_apart() -> None:
    text = "# Head\nOne two. Three\nfour five?\n\n| a |\n- six `x y` seven\n1. eight\n```\nx\n```"
    assert [len(part.split()) for part in sentences(text)] == [2, 3, 4, 1]


def test_words_are_counted_without_code_addresses_and_made_tables() -> None:
    text = (
        "One [two](three.md) 4 ± 5\n```sh\nsix\n```\n<!-- a b -->\n| seven |\n<!-- /a b -->\neight"
    )
    assert words(text) == 3
