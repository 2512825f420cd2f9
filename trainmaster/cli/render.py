"""Answers on the terminal: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import json
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

Row = Sequence[Any]


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """`--json` and `--csv`, one at most."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="print JSON")
    group.add_argument("--csv", action="store_true", help="print comma-separated values")


def show(args: argparse.Namespace, headers: Sequence[str], rows: Sequence[Row], raw: Any) -> None:
    """The answer in the format that was asked for; `raw` is what JSON shows."""
    if getattr(args, "json", False):
        show_json(raw)
    elif getattr(args, "csv", False):
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(headers)
        writer.writerows([plain(cell) for cell in row] for row in rows)
    else:
        print(table(headers, rows))


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(headers: Sequence[str], rows: Sequence[Row]) -> str:
    """Columns as wide as their contents; on a terminal the widest one is cut so that a row fits a line."""
    cells = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max([_width(header), *(_width(row[i]) for row in cells)]) for i, header in enumerate(headers)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - 3 * (len(widths) - 1) - 2
        while sum(widths) > room and max(widths) > 12:
            widths[widths.index(max(widths))] -= 1
    right = [
        bool(rows) and all(isinstance(row[i], int | float) or row[i] is None for row in rows)
        for i in range(len(headers))
    ]
    lines = [" | ".join(_fit(h, w, r) for h, w, r in zip(headers, widths, right, strict=True))]
    lines.append("-+-".join("-" * width for width in widths))
    lines += [" | ".join(_fit(c, w, r) for c, w, r in zip(row, widths, right, strict=True)) for row in cells]
    return "\n".join(f" {line}".rstrip() for line in lines)


def plain(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.6g}"
    if isinstance(cell, Mapping | list | tuple):
        return json.dumps(cell, ensure_ascii=False)
    return str(cell)


def time(text: str | None) -> str:
    """An RFC 3339 time in the user's zone, to the second."""
    if not text:
        return ""
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(started: str | None, ended: str | None) -> str:
    """Hours, minutes and seconds between two times; until now when there is no end."""
    if not started:
        return ""
    begin = dt.datetime.fromisoformat(started.replace("Z", "+00:00"))
    end = dt.datetime.fromisoformat(ended.replace("Z", "+00:00")) if ended else dt.datetime.now(dt.UTC)
    seconds = max(int((end - begin).total_seconds()), 0)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def hparams(values: Mapping[str, Any]) -> str:
    """Hyperparameters on one line, nested ones with dots."""
    flat: dict[str, Any] = {}

    def walk(prefix: str, inner: Mapping[str, Any]) -> None:
        for key, value in inner.items():
            if isinstance(value, Mapping):
                walk(f"{prefix}{key}.", value)
            else:
                flat[prefix + key] = value

    walk("", values)
    return " ".join(f"{key}={plain(value)}" for key, value in flat.items())


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fit(text: str, width: int, right: bool) -> str:
    if _width(text) > width:
        text = text[: width - 1] + "…"
    padding = " " * (width - _width(text))
    return padding + text if right else text + padding
