"""Pages for people: one file each, without script or other files, light and dark."""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from infra.errors import CausewayError, shown

STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "svg{width:100%;min-width:36em;height:auto;font-size:12px;fill:#222}polyline{fill:none;stroke:#06c;stroke-width:2}"
    "circle{fill:#b30}.grid{stroke:#ccc}figure{margin:1.5em 0;overflow-x:auto}"
    "table{margin:1.5em 0}td,th{padding:.1em 1.5em .1em 0;text-align:left}"
    "caption{text-align:left;white-space:nowrap}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}svg{fill:#ddd}"
    "polyline{stroke:#6bf}circle{fill:#f96}.grid{stroke:#444}}"
)


class Markup(str):
    """A fragment that is HTML already. Any other text is taken for one that a node may have written."""

    __slots__ = ()


def document(title: str, parts: Iterable[str], more_style: str = "") -> str:
    """A page of fragments under their title."""
    head = '<!doctype html><html lang="en"><meta charset="utf-8">'
    head += f'<meta name="viewport" content="width=device-width"><title>{fragment(title)}</title>'
    head += f"<style>{STYLE}{more_style}</style><h1>{fragment(title)}</h1>"
    return head + "\n" + "\n".join(parts) + "\n</html>\n"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts, and of fragments (`Markup`)."""
    title = f"<caption>{fragment(caption)}</caption>" if caption else ""
    lines = [f"<table>{title}", _row("th", head)]
    return "\n".join([*lines, *(_row("td", row) for row in rows), "</table>"])


def _row(cell: str, words: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{cell}>{fragment(word)}</{cell}>" for word in words) + "</tr>"


def fragment(text: str) -> str:
    """A text as HTML, control characters by their numbers."""
    return text if isinstance(text, Markup) else html.escape(shown(text))


def save(file: Path, text: str) -> None:
    """Write a page; CausewayError where that cannot be."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CausewayError(f"{file} cannot be written: {error.strerror}") from None
