"""Pages for people: one file each, without script or other files, light and dark."""

import html
from collections.abc import Iterable, Sequence

STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "svg{width:100%;min-width:36em;height:auto;font-size:12px;fill:#222}polyline{fill:none;stroke:#06c;stroke-width:2}"
    "circle{fill:#b30}.grid{stroke:#ccc}figure{margin:1.5em 0;overflow-x:auto}"
    "table{margin:1.5em 0}td,th{padding:.1em 1.5em .1em 0;text-align:left}"
    "caption{text-align:left;white-space:nowrap}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}svg{fill:#ddd}"
    "polyline{stroke:#6bf}circle{fill:#f96}.grid{stroke:#444}}"
)


def document(title: str, parts: Iterable[str], more_style: str = "") -> str:
    """A page of fragments under their title."""
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
    head += f"<style>{STYLE}{more_style}</style><h1>{html.escape(title)}</h1>"
    return head + "\n" + "\n".join(parts) + "\n</html>\n"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts."""
    lines = [f"<table><caption>{html.escape(caption)}</caption>", _row("th", head)]
    return "\n".join([*lines, *(_row("td", row) for row in rows), "</table>"])


def _row(cell: str, words: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{cell}>{html.escape(word)}</{cell}>" for word in words) + "</tr>"
