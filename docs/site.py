"""A hook of mkdocs: pages are written for a repository's reader, and mended here for the site.

- Pages link to `../examples/own_world.py` as a repository shows it. On the site that file is a page
  too, and the link goes there, so that the site can be read without the repository.
- Pictures are links to themselves: on a phone they open large.
- Notebooks, kept as text, are pages of their cells.
- A list may follow its sentence at once, as in CommonMark; Python-Markdown wants a blank line.
- p_min, e^ε and π_{k+1} get real subscripts and superscripts.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parent.parent
NAMES: Final = {
    "benchmarks/README.md": "benchmarks",
    "CHANGELOG.md": "changelog",
    "CODE_OF_CONDUCT.md": "conduct",
    "CONTRIBUTING.md": "contributing",
    "SECURITY.md": "security",
}
LINK: Final = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")
PICTURE: Final = re.compile(r'<img [^>]*src="([^":]+)"[^>]*>')
ITEM: Final = re.compile(r"(?:- |1\. )")
KEPT: Final = re.compile(r"(`+[^`]+`+|\]\([^)]*\)|^#.*)")  # code, addresses and headings
RAISED: Final = re.compile(r"\^(\{|−?\w+)")
LOWERED: Final = re.compile(
    r"(?:(?:(?<![A-Za-z_])[^\W\d_]|[α-ω])\u0302?'?|Pr|max|mean|sup)"
    r"_(\{|(?:min|max|Π'|[^\W_](?:,[^\W_])?)(?![^\W_]))"
)


def sources() -> dict[str, str]:
    """The pages made of files outside docs/, each with its file."""
    examples = sorted((ROOT / "examples").rglob("*.py"))
    paths = [*NAMES, *(path.relative_to(ROOT).as_posix() for path in examples)]
    return {_page_of(path): path for path in paths}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages made of files outside docs/."""
    for page, path in sources().items():
        files.append(File.generated(config, page, content=_text_of(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Points links to files of the repository at the pages made of them."""
    return mended(linked(markdown, page.file.src_uri))


def on_page_content(html: str, **_: Any) -> str:
    """Makes every picture a link to itself."""
    return PICTURE.sub(r'<a href="\1">\g<0></a>', html)


def linked(markdown: str, page: str) -> str:
    """A page whose links to files of the repository go to pages of the site."""
    made = sources()
    pages = {path: name for name, path in made.items()}
    home = PurePosixPath(made.get(page, f"docs/{page}")).parent

    def led(link: re.Match[str]) -> str:
        target = posixpath.normpath(home / link[2])
        inside = target.startswith("docs/")
        if not inside and target not in pages:
            return link[0]
        there = target.removeprefix("docs/") if inside else pages[target]
        return link[1] + posixpath.relpath(there, PurePosixPath(page).parent)

    return LINK.sub(led, markdown)


def mended(markdown: str) -> str:
    """A page with its lists apart from their sentences and its formulas set, code left alone."""
    lines: list[str] = []
    fenced = in_list = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            if not line.strip():
                in_list = False
            elif ITEM.match(line) and not in_list:
                in_list = True
                if lines and lines[-1].strip():
                    lines.append("")
            parts = KEPT.split(line)
            parts[::2] = [with_scripts(part) for part in parts[::2]]
            line = "".join(parts)
        lines.append(line)
    return "\n".join(lines) + "\n"


def with_scripts(text: str) -> str:
    """A text whose formulas have HTML's subscripts and superscripts."""
    made, rest = "", text
    while found := min(
        filter(None, (RAISED.search(rest), LOWERED.search(rest))),
        key=lambda one: one.start(1),
        default=None,
    ):
        tag = "sup" if rest[found.start(1) - 1] == "^" else "sub"
        inner, end = found[1], found.end(1)
        if inner == "{":
            end = _closing(rest, end)
            inner = rest[found.end(1) : end - 1]
        made += f"{rest[: found.start(1) - 1]}<{tag}>{with_scripts(inner)}</{tag}>"
        rest = rest[end:]
    return made + rest


def _closing(text: str, start: int) -> int:
    """The place after the brace that closes the one before `start`."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    return len(text)


def _page_of(path: str) -> str:
    """Where the site shows a file of the repository."""
    return f"repository/{NAMES.get(path, PurePosixPath(path).stem)}.md"


def cells(notebook: str) -> list[tuple[str, str]]:
    """A notebook's cells (jupytext, percent format): "markdown" or "python", and the text."""
    found = []
    for cell in re.split(r"^# %%", notebook, flags=re.MULTILINE)[1:]:  # before the first: its head
        kind, _, text = cell.partition("\n")
        if kind.strip() == "[markdown]":
            found.append(("markdown", re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)))
        else:
            found.append(("python", text.strip()))
    return found


def _text_of(source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".md":
        return text
    name = source.relative_to(ROOT).as_posix()
    if source.parent.name == "notebooks":
        shown = [
            said if kind == "markdown" else f"```python\n{said}\n```" for kind, said in cells(text)
        ]
        as_notebook = f"As a notebook: `jupytext --to ipynb {name}`"
        return "\n\n".join([*shown, as_notebook]) + "\n"
    return f"# {name}\n\n````python\n{text}````\n"
