"""Output of `det`: tables for people, JSON, YAML and CSV for programs.

A cell is a value, not a text: only tables format `Percent`, `Bytes`, `Moment` and mappings.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from trainmaster.cli.terminal import unfiltered
from trainmaster.texts import csv_cell, visible

Row = Sequence[Any]
_LINE_ENDS = re.compile("[\t\r\n]+")
NARROWEST = 8  # characters that are left of a text in a table, at least


class Percent(float):
    """A share from 0 to 1."""


class Bytes(int):
    """A size in bytes."""


class Moment(str):
    """An RFC 3339 time."""


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """`--json`, `--yaml` and `--csv`, one at most."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="print JSON")
    group.add_argument("--yaml", action="store_true", help="print YAML")
    group.add_argument("--csv", action="store_true", help="print comma-separated values")


def show(args: argparse.Namespace, headers: Sequence[str], rows: Sequence[Row], raw: Any) -> None:
    """Print an answer in the format that the options select; `raw` is what JSON and YAML show."""
    if getattr(args, "json", False):
        show_json(raw)
    elif getattr(args, "yaml", False):
        print(yaml(raw), end="")
    elif getattr(args, "csv", False):
        _write_csv(sys.stdout, headers, rows)
    else:
        print(table(headers, rows))


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False), file=unfiltered(sys.stdout))


def show_json_line(value: Any, *, flush: bool = False) -> None:
    """Print one JSON object on one line."""
    print(json.dumps(value, ensure_ascii=False), file=unfiltered(sys.stdout), flush=flush)


def save_csv(path: Path, headers: Sequence[str], rows: Sequence[Row]) -> None:
    """Write a file, and its folder. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        _write_csv(file, headers, rows)


def yaml(value: Any) -> str:
    """YAML text; JSON, which is valid YAML, where the library is missing."""
    try:
        import yaml as library
    except ImportError:
        return json.dumps(value, indent=2)
    return str(library.safe_dump(value, sort_keys=False, allow_unicode=True))


def table(headers: Sequence[str], rows: Sequence[Row]) -> str:
    """Format a table as text. On a terminal, times are shortened and texts cut so that a row fits on a line."""
    cells = [[_one_line(readable(cell)) for cell in row] for row in rows]
    widths = _widths(headers, cells)
    if sys.stdout.isatty():
        import shutil

        room = shutil.get_terminal_size().columns - 3 * (len(headers) - 1) - 1
        if sum(widths) > room:
            cells = [[_one_line(_short(cell)) for cell in row] for row in rows]
            widths = _widths(headers, cells)
            _narrow(widths, [i for i, column in enumerate(_columns(headers, rows)) if _is_text(column)], room)
    right = [
        bool(rows) and all(isinstance(c, int | float | None) for c in column) for column in _columns(headers, rows)
    ]
    lines = [" | ".join(_fit(h, w, r) for h, w, r in zip(headers, widths, right, strict=True))]
    lines.append("-+-".join("-" * width for width in widths))
    lines += [" | ".join(_fit(c, w, r) for c, w, r in zip(row, widths, right, strict=True)) for row in cells]
    return "\n".join(f" {line}".rstrip() for line in lines)


def _columns(headers: Sequence[str], rows: Sequence[Row]) -> list[list[Any]]:
    return [[row[i] for row in rows] for i in range(len(headers))]


def _is_text(column: Sequence[Any]) -> bool:
    return any(isinstance(cell, str | Mapping | list | tuple) and not isinstance(cell, Moment) for cell in column)


def _widths(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max([_width(header), *(_width(row[i]) for row in cells)]) for i, header in enumerate(headers)]


def _narrow(widths: list[int], texts: Sequence[int], room: int) -> None:
    """Shorten the widest text column until the row fits, or all have the least width."""
    while sum(widths) > room and texts:
        widest = max(texts, key=lambda i: widths[i])
        if widths[widest] <= NARROWEST:
            return
        widths[widest] -= 1


def _short(cell: Any) -> str:
    return time(cell, "%m-%d %H:%M") if isinstance(cell, Moment) else readable(cell)


def readable(cell: Any) -> str:
    """Format a value as text for people."""
    match cell:
        case None:
            return ""
        case bool():
            return "yes" if cell else "no"
        case Percent():
            return f"{100 * cell:.1f} %"
        case Bytes():
            return size(cell)
        case Moment():
            return time(cell)
        case float():
            return f"{cell:.6g}"
        case Mapping():
            return hparams(cell)
        case list() | tuple():
            return ", ".join(map(readable, cell))
    return str(cell)


def exact(cell: Any) -> str:
    """Format a value as text for a CSV file: numbers in full, times with their zone, structures as JSON."""
    if cell is None:
        return ""
    if isinstance(cell, bool | Mapping | list | tuple):
        return json.dumps(cell, ensure_ascii=False)
    if isinstance(cell, float):
        return repr(float(cell))
    return str(int(cell)) if isinstance(cell, int) else str(cell)


def time(text: str | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format an RFC 3339 time in the user's time zone; to the second unless `form` says otherwise."""
    if not text:
        return ""
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone().strftime(form)


def size(count: int) -> str:
    """Bytes with a unit, in steps of 1000."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def hparams(values: Mapping[str, Any]) -> str:
    """Format a mapping such as hyperparameters on one line, nested ones with dots."""
    return " ".join(f"{key}={_inner(value)}" for key, value in _flat("", values))


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value


def _inner(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_csv(file: TextIO, headers: Sequence[str], rows: Sequence[Row]) -> None:
    for row in (headers, *rows):
        file.write(",".join(csv_cell(exact(cell)) for cell in row) + "\n")


def _one_line(text: str) -> str:
    """Return the text with its hidden characters shown, and without line ends: names and reasons are other users'
    input."""
    return text if text.isascii() and text.isprintable() else visible(_LINE_ENDS.sub(" ", text))


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fit(text: str, width: int, right: bool) -> str:
    if _width(text) > width:
        while _width(text) > width - 1:
            text = text[:-1]
        text += "…"
    padding = " " * (width - _width(text))
    return padding + text if right else text + padding
