"""Parses PBS's three output formats: `-F dsv`, plain `-f` and `-F json`. Pure.

Only `dsv` with a new random delimiter for each query cannot be forged: any user may put line ends into
a job's account name or variables, and plain `-f` prints them as they are: a whole record "Job Id: ..." can be forged.
JSON up to release 23.06.06 is often not JSON at all (openpbs#2604 fixed it; openpbs#2704 keeps names that look like
numbers as text).
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class Format(enum.StrEnum):
    """Output formats of PBS."""

    DSV = "dsv"
    TEXT = "text"
    JSON = "json"

    def words(self, mark: str) -> list[str]:
        """Return the options that select it; `mark` separates the fields of `dsv`."""
        match self:
            case Format.DSV:
                return ["-F", "dsv", "-D", mark]
            case Format.JSON:
                return ["-F", "json"]
            case Format.TEXT:
                return []


@dataclass(frozen=True)
class PrintedRecord:
    """One job, queue, server or node: its name and attributes. Resources have names such as Resource_List.walltime."""

    name: str
    attributes: Mapping[str, str]

    def get(self, name: str) -> str:
        return self.attributes.get(name, "")


# "Job Id: 1.server", "Queue: workq", "Server: host", and pbsnodes' "Name=host".
_HEAD = re.compile(r"(?:Job Id: *|Queue: *|Server: *|Name=)(\S+)")


def read(form: Format, stdout: str, mark: str) -> tuple[list[PrintedRecord], list[str]]:
    """Return the records of one answer, and the lines that cannot be parsed."""
    match form:
        case Format.DSV:
            return dsv(stdout, mark)
        case Format.JSON:
            return json_records(stdout)
        case Format.TEXT:
            return text(stdout)


def dsv(stdout: str, mark: str) -> tuple[list[PrintedRecord], list[str]]:
    """Parse one record per line; line ends in values arrive as a backslash and an n."""
    found: list[PrintedRecord] = []
    odd: list[str] = []
    for line in stdout.split("\n"):
        if not line.strip():
            continue
        head, *fields = line.split(mark)
        name = _HEAD.fullmatch(head.strip())
        # A banner may look like a record, but it cannot contain the mark.
        if name is None or not fields:
            odd.append(line.strip()[:200])
            continue
        pairs = (field.partition("=") for field in fields)
        found.append(PrintedRecord(name[1], {key.strip(): value for key, equals, value in pairs if equals}))
    return found, odd


def text(stdout: str) -> tuple[list[PrintedRecord], list[str]]:
    """Parse plain `qstat -f`, `qstat -Bf`, `qstat -Qf` and `pbsnodes -a`: attributes are indented, long values go on
    behind a tab on the next line."""
    found: list[PrintedRecord] = []
    odd: list[str] = []
    name: str | None = None
    attributes: dict[str, str] = {}
    last: str | None = None

    def close() -> None:
        if name is not None:
            found.append(PrintedRecord(name, attributes))

    for line in stdout.split("\n"):
        if not line.strip():
            continue
        head = _HEAD.fullmatch(line.rstrip())
        if head or re.fullmatch(r"[A-Za-z0-9][\w.\-\[\]]*", line.rstrip()):  # pbsnodes prints the bare name
            close()
            name, attributes, last = head[1] if head else line.rstrip(), {}, None
        elif line.startswith("\t") and last is not None:
            attributes[last] += line[1:]
        elif line.startswith("    ") and name is not None and " = " in f"{line} ":
            last, _, value = line.strip(" ").partition(" = ")
            last = last.removesuffix(" =").strip()
            attributes[last] = value
        else:
            odd.append(line.strip()[:200])
    close()
    return found, odd


def json_records(stdout: str) -> tuple[list[PrintedRecord], list[str]]:
    """Parse `-F json`, also invalid JSON. Lines of a broken answer that cannot be recovered are returned as
    unparsed."""
    start = stdout.find("{")
    if start < 0:
        return [], [line.strip()[:200] for line in stdout.splitlines() if line.strip()]
    odd = [line.strip()[:200] for line in stdout[:start].splitlines() if line.strip()]
    try:
        # Text as it stands, so that a job called 1e5 keeps its name.
        data = json.loads(stdout[start:], strict=False, parse_int=str, parse_float=str, parse_constant=str)
    except ValueError:
        data, broken = _by_lines(stdout[start:])
        odd += broken
    if not isinstance(data, dict):
        return [], [*odd, stdout.strip()[:200]]
    sections = [data.get(key) for key in ("Jobs", "Queue", "Server", "nodes")]
    found = [
        PrintedRecord(str(name), _flat(attributes))
        for section in sections
        if isinstance(section, dict)
        for name, attributes in section.items()
        if isinstance(attributes, dict)
    ]
    return found, odd


def _flat(attributes: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in attributes.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _plain(value)
    return flat


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(_plain(item) for item in value)
    return "" if value is None else str(value)


_OPENS = re.compile(r'\s*"(.*)"\s*:\s*\{\s*')
_CLOSES = re.compile(r"\s*\},?\s*")
_PAIR = re.compile(r'\s*"([^"]*)"\s*:\s*(.*?),?\s*')


def _by_lines(stdout: str) -> tuple[dict[str, Any], list[str]]:
    """Old releases print one pair a line, with escapes that JSON does not have, bare words (nan, 007, 0x1f) and
    missing commas; lines are sound nevertheless, because line ends in values are escaped."""
    top: dict[str, Any] = {}
    path: list[dict[str, Any]] = [top]
    odd: list[str] = []
    for line in stdout.splitlines()[1:]:
        if not line.strip():
            continue
        opened = _OPENS.fullmatch(line)
        if opened:
            inner: dict[str, Any] = {}
            path[-1][opened[1]] = inner
            path.append(inner)
        elif _CLOSES.fullmatch(line):
            path = path[:-1] or [top]
        elif pair := _PAIR.fullmatch(line):
            path[-1][pair[1]] = _value(pair[2])
        else:
            odd.append(line.strip()[:200])
    return top, odd


def _value(text: str) -> str:
    if not (len(text) >= 2 and text.startswith('"') and text.endswith('"')):
        return text
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        return text[1:-1]


def by_name(records: Sequence[PrintedRecord]) -> dict[str, PrintedRecord]:
    """Records by their names; the last of several wins."""
    return {record.name: record for record in records}
