"""Stored configurations, observations and their sections are read through their values, never by keys."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainmaster.master

PACKAGE = Path(trainmaster.master.__file__).parent
# Names of what the values read: by attributes, or by names of keys that the values' classes have.
VALUES = {
    *("config", "observed", "exits", "resources", "environment", "searcher", "storage", "checkpoint_storage"),
    *("retention_policy", "integrations", "reproducibility", "exit_record"),
    *("best_validation", "latest_validation", "shutdown", "proxy", "shows", "secrets"),
}
READERS = {"get", "pop", "setdefault"}
# The administrator's configuration, as it was written.
EXEMPT = {"api/master.py: master.config.get('feature_switches')"}


def by_keys(source: str) -> Iterator[str]:
    """Yield the expressions that read a value by a key that is spelt there."""
    for node in ast.walk(ast.parse(source)):
        holder: ast.expr | None = None
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript):
            holder, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
            holder, key = node.func.value, node.args[0] if node.args else None
        if holder is not None and isinstance(key, ast.Constant) and isinstance(key.value, str) and _is_value(holder):
            yield ast.unparse(node)


def _is_value(node: ast.expr) -> bool:
    """Whether an expression has the name of a value, or is a section of one, perhaps with a default: `x or {}`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in VALUES
        case ast.BoolOp(values=[first, *_]):
            return _is_value(first)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key in VALUES
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
            return key in VALUES
    return False


def test_nothing_of_the_master_reads_values_by_keys() -> None:
    found = {
        f"{name}: {expression}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith(("values/", "db/migrations/"))
        for expression in by_keys(path.read_text())
    }
    assert found == EXEMPT


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("row.config['resources']['slots_per_trial']", 2),
        ("config.get('max_restarts')", 1),
        ("(row.observed or {}).get('nodes')", 1),
        ("allocation.observed['nodes']", 1),
        ("(config.get('environment') or {}).get('image')", 2),
        ("config['name'] = 'x'", 1),
        ("row.config.resources.slots_per_trial", 0),
        ("Allocation.observed[ObservedJob.EXPECTED_START]", 0),
        ("headers.get('resources')", 0),
    ],
)
def test_an_example_is_found(source: str, found: int) -> None:
    assert len(list(by_keys(source))) == found
