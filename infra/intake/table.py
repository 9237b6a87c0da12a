"""A list of machines as CSV, one a line below a line that names the columns."""

import csv
import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.errors import BadInputError
from infra.intake.machine import ListError, Row, word

if TYPE_CHECKING:
    import _csv

COLUMNS = (
    "name", "address", "region", "pool", "role", "rack", "gpus", "gpu_model", "nics", "nic_gbps",
    "ssh_user", "ssh_port", "ssh_key_file", "host_key", "ssh_agent", "ssh_jump", "ssh_jump_key",
    "ssh_host_ca", "sudo", "sudo_password_secret",
)  # fmt: skip
NEEDED = ("address",)
EXCELS = re.compile(r"\A(\s*)sep=[,;\t]")
"""The line by which Excel is told what stands between the cells."""


def read_table(text: str, file: str) -> tuple[list[Row], list[str]]:
    """(its machines, the columns that are not read). ListError for lines that are longer than the first."""
    delimiter = max(",;\t", key=head_of(text).count)
    reader = csv.reader(io.StringIO(EXCELS.sub(r"\1", text), newline=""), delimiter=delimiter, strict=True)
    try:
        lines = list(_lines(reader))
    except csv.Error as error:
        raise BadInputError(f"{file}:{reader.line_num}: not CSV: {error}") from None
    if not lines:
        raise BadInputError(f"{file}: empty", hint=f"its first line names columns: {', '.join(COLUMNS)}")
    place = f"{file}:{lines[0][0]}"
    names = [name.strip().lower().replace(" ", "_") for name in lines[0][1]]
    if repeated := sorted({name for name in names if names.count(name) > 1 and name}):
        raise BadInputError(f"{place}: the column {word(repeated[0])} stands there twice")
    if missing := [name for name in NEEDED if name not in names]:
        known = ", ".join(COLUMNS)
        raise BadInputError(f"{place}: the column {missing[0]} is missing", hint=f"columns are {known}")
    if wrong := [
        f"{file}:{number}: {len(cells)} cells, but there are {len(names)} columns"
        for number, cells in lines[1:]
        if len(cells) > len(names)
    ]:
        raise ListError(wrong, hint="put what holds a comma in quotes")
    rows = [_row(f"{file}:{number}", dict(zip(names, cells, strict=False))) for number, cells in lines[1:]]
    return rows, [word(name) for name in names if name and name not in COLUMNS]


def head_of(text: str) -> str:
    """The line that names the columns: the first that says something to others than Excel."""
    lines = EXCELS.sub(r"\1", text).splitlines()
    return next((line for line in lines if line.strip()), "")


def _lines(reader: "_csv.Reader") -> Iterator[tuple[int, list[str]]]:
    """Those that say something, with the number of the line where each ends."""
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield reader.line_num, [cell.strip() for cell in cells]


def _row(where: str, cells: dict[str, str]) -> Row:
    known = {name: cells[name] for name in COLUMNS if cells.get(name)}
    return Row(where, known.get("name") or known.get("address", ""), known)
