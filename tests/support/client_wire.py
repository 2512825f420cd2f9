"""Generates `trainmaster/client/wire.py` from the master's OpenAPI document, so that both have one source: the shapes
in `trainmaster/master/api`. `scripts/generate` writes it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from trainmaster.client import wire
from trainmaster.master.app import PARTS

Json = Mapping[str, Any]
PATH = Path(wire.__file__)
# What the client has types for; what these refer to comes along.
WANTED = (
    *("Experiment", "Trial", "Checkpoint-Output", "Model", "ModelVersion", "Workspace", "Project", "Template"),
    *("User", "TokenInfo", "Webhook", "ResourcePool", "Pagination"),
    "LogWindow",
)
HEAD = '''"""What a master's answers hold, as types for type checkers.

Written by `scripts/generate` from the OpenAPI document that the master serves; do not edit.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

Json = dict[str, Any]
'''
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "object": "Json"}


def document() -> Json:
    """The OpenAPI document of the master as it is in this tree."""
    app = FastAPI()
    for part in PARTS:
        app.include_router(part.router)
    return app.openapi()


def source(document: Json) -> str:
    """The module's text."""
    schemas = document["components"]["schemas"]
    names = sorted(closure(schemas, WANTED), key=name_of)
    parts = [HEAD]
    for name in names:
        required = schemas[name].get("required", ())
        fields = [
            f"    {field}: {text if field in required else f'NotRequired[{text}]'}"
            for field, schema in schemas[name]["properties"].items()
            for text in [_type(schema)]
        ]
        parts.append("\n".join(["", f"class {name_of(name)}(TypedDict):", *fields]))
    return formatted("\n\n".join(parts) + "\n")


def closure(schemas: Json, wanted: Iterable[str]) -> set[str]:
    """The names of the wanted schemas and of all that they refer to."""
    found: set[str] = set()
    due = list(wanted)
    while due:
        name = due.pop()
        if name not in found:
            found.add(name)
            due += _referred(schemas[name])
    return found


def _referred(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from _referred(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _referred(value)


def name_of(schema: str) -> str:
    return schema.removesuffix("-Output")


def _type(schema: Json) -> str:
    if "$ref" in schema:
        return name_of(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(part) for part in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list[{_type(schema['items'])}]"
    return _PLAIN.get(schema.get("type", ""), "Any")


def formatted(text: str) -> str:
    """A module of the client as the formatter writes it."""
    command = [sys.executable, "-m", "ruff", "format", "-", "--stdin-filename", str(PATH)]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    PATH.write_text(source(document()))
    print(PATH)
