"""Generates `trainmaster/webui/types/api.d.ts` from the master's OpenAPI document, as the types of the Python client
are. `scripts/generate` writes it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.client_wire import Json, closure, document, name_of
from trainmaster import webui

assert webui.__file__
PATH = Path(webui.__file__).parent / "types/api.d.ts"
# What the page's modules name; what these refer to comes along.
WANTED = (
    "PageSession",
    "ExperimentTable",
    "Experiment",
    "Trial-Output",
    "ResultsAnswer",
    "TicketAnswer",
    "HomeAnswer",
    "ExperimentBoard",
    "StoryAnswer",
    "RungRace",
    "Comparison",
    "TrialBoard",
    "AttemptsAnswer",
    "TrialCurves",
    "CheckpointTable",
    "Machine",
    "UsageAnswer",
    "StorageUsage",
    "GitAnswer",
    "LogWindow",
    "SearchSimulation",
    "SearchPlanAnswer",
)
HEAD = """/**
 * What the master's answers hold.
 *
 * Written by `scripts/generate` from the OpenAPI document that the master serves; do not edit.
 */

export type Json = { [name: string]: unknown };
"""
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def source(described: Json) -> str:
    schemas = described["components"]["schemas"]
    wanted = [name if name in schemas else name.removesuffix("-Output") for name in WANTED]
    parts = [HEAD]
    for key in sorted(closure(schemas, wanted), key=name_of):
        schema = schemas[key]
        required = schema.get("required", ())
        fields = [
            f"    {name}{'' if field in required else '?'}: {_type(one)};"
            for field, one in schema.get("properties", {}).items()
            for name in [field if field.isidentifier() else json.dumps(field)]
        ]
        parts.append("\n".join([f"export interface {name_of(key)} {{", *fields, "}\n"]))
    return "\n".join(parts)


def _type(schema: Json) -> str:
    if "$ref" in schema:
        return name_of(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(part) for part in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    if schema.get("type") == "array":
        return f"({_type(schema['items'])})[]"
    if schema.get("type") == "object":
        more = schema.get("additionalProperties")
        return f"{{ [name: string]: {_type(more)} }}" if isinstance(more, dict) and more else "Json"
    return _PLAIN.get(schema.get("type", ""), "unknown")


if __name__ == "__main__":
    PATH.write_text(source(document()))
    print(PATH)
