"""Generates `trainmaster/client/view_records.py`: the answers behind the web page as dataclasses, from the master's
OpenAPI document as `wire.py` is. `scripts/generate` writes it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.support.client_wire import Json, document, formatted, name_of
from trainmaster.client import view_records

PATH = Path(view_records.__file__)
# The answers of the calls; what they refer to comes along.
WANTED = (
    *("HomeAnswer", "ExperimentBoard", "Curves", "StoryEvent", "RungRace", "CheckpointTable", "TrialBoard"),
    *("TrialCurves", "Machine", "Comparison", "UsageAnswer", "StorageUsage", "GitAnswer", "VersionOrigin"),
    "SearchPlanAnswer",
    "SearchSimulation",
)
# Names that another module of the client has for something else, or that say nothing outside of the page.
RENAMED = {
    "HomeAnswer": "HomeView",
    "UsageAnswer": "UsageView",
    "Machine": "MachineView",
    "LogLine": "BoardLogLine",
    "StoryEvent": "ExperimentEvent",
}
HEAD = '''"""What the web page's calls answer, as immutable objects. Times are seconds since 1970.

Written by `scripts/generate` from the OpenAPI document that the master serves; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
'''
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_WIDTH = 114


def source(described: Json) -> str:
    schemas = described["components"]["schemas"]
    parts = [HEAD]
    for key in _in_order(schemas):
        schema = schemas[key]
        lines = ["", "@dataclass(frozen=True)", f"class {_named(key)}:"]
        if said := " ".join(schema.get("description", "").replace("null", "None").split()):
            lines += [textwrap.indent(textwrap.fill(f'"""{said}"""', width=_WIDTH), "    "), ""]
        lines += [f"    {_snake(field)}: {_type(one)}" for field, one in schema["properties"].items()]
        parts.append("\n".join(lines))
    return formatted("\n\n".join(parts) + "\n")


def _in_order(schemas: Json) -> list[str]:
    """Each behind those that it refers to."""
    found: dict[str, None] = {}

    def visit(key: str) -> None:
        for other in _references(schemas[key]["properties"]):
            if other not in found:
                visit(other)
        found[key] = None

    for name in WANTED:
        visit(name if name in schemas else f"{name}-Output")
    return list(found)


def _references(described: object) -> Iterator[str]:
    yield from re.findall(r"#/components/schemas/([^']+)", str(described))


def _named(key: str) -> str:
    return RENAMED.get(name_of(key), name_of(key))


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)[A-Z]", lambda found: f"_{found.group().lower()}", name)


def _type(schema: Json) -> str:
    if "$ref" in schema:
        return _named(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(part) for part in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"tuple[{_type(schema['items'])}, ...]"
    if schema.get("type") == "object":
        more = schema.get("additionalProperties")
        return f"Mapping[str, {_type(more) if isinstance(more, dict) and more else 'Any'}]"
    return _PLAIN.get(schema.get("type", ""), "Any")


if __name__ == "__main__":
    PATH.write_text(source(document()))
    print(PATH)
