"""Services are bound to their master once: no function takes the store or the clusters from its caller."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainmaster.master.services

PACKAGE = Path(trainmaster.master.services.__file__).parent
BOUND = {"Store", "Clusters", "SiteDefaults", "Wakeups", "MasterContext"}
# What works before there is a master, and what the context is made of.
EXEMPT = {"access/bootstrap.py:prepare", "clusters/clusters.py:live_jobs", "clusters/node_list.py:show"}


def unbound(source: str) -> Iterator[str]:
    """Yield the names of functions that take what they could be bound to; a class takes it in `__init__`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__":
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if any(isinstance(a.annotation, ast.Name) and a.annotation.id in BOUND for a in arguments):
                yield node.name


def test_service_functions_take_no_bindable_arguments() -> None:
    names = {
        f"{path.relative_to(PACKAGE).as_posix()}:{name}"
        for path in PACKAGE.rglob("*.py")
        for name in unbound(path.read_text())
    }
    assert names == EXEMPT


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def kill(store: Store, trial_id: int) -> None: ...", ["kill"]),
        ("class Trials:\n    def __init__(self, master: MasterContext) -> None: ...", []),
        ("class Trials:\n    def kill(self, *, clusters: Clusters) -> None: ...", ["kill"]),
        ("def _row(session: Session, trial_id: int) -> Trial: ...", []),
    ],
)
def test_the_check_finds_such_functions(source: str, names: list[str]) -> None:
    assert list(unbound(source)) == names
