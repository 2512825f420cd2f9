"""Every public method of the SDK and of the Core API documents its arguments, its result and its errors."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainmaster import client, core

SDK = {
    "artifacts": ("Checkpoint", "Model", "ModelVersion"),
    "cluster": ("ClusterView",),
    "experiment": ("Experiment", "Trial"),
    "experiments": ("Experiments",),
    "filters": ("Column", "Condition", "column", "hparam", "metric"),
    "login": ("connect",),
    "master": ("Master",),
    "model_registry": ("ModelRegistry",),
    "organisation": ("Organisation",),
    "policies": ("Policies",),
    "queue_calls": ("QueueCalls",),
    "session_calls": ("SessionCalls",),
    "tasks": ("Tasks",),
    "trial_records": ("TrialRecords",),
    "users": ("Users",),
    "views": ("Views", "by_name"),
}
CORE = ("CheckpointContext", "Context", "DistributedContext", "PreemptContext", "ProfilerContext", "SearcherContext")
CORE += ("SearcherOperation", "TrainContext", "init")
# What compares values or closes a connection cannot fail.
RAISES_NOTHING = {"Master.close", "Column.is_empty", "Column.is_there", "column", "hparam", "metric", "by_name"}
NAMED_BY_THEIR_RESULT = {"Column.is_empty", "Column.is_there"}


def methods(thing: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods that a class defines, or the function itself. Properties are attributes to their readers."""
    if inspect.isfunction(thing):
        yield thing.__name__, thing
        return
    for name, member in vars(thing).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(function) and not name.startswith("_"):
            yield f"{thing.__name__}.{name}", function


def of_sdk() -> list[tuple[str, Callable[..., Any]]]:
    modules = ((importlib.import_module(f"trainmaster.client.{module}"), names) for module, names in SDK.items())
    return [found for module, names in modules for name in names for found in methods(getattr(module, name))]


def of_core() -> list[tuple[str, Callable[..., Any]]]:
    return [found for name in CORE for found in methods(getattr(core, name))]


def documented(docstring: str, section: str) -> str | None:
    """The text of a section; None where there is none."""
    found = re.search(rf"^(?:{section}):\n((?:(?:    .*)?\n?)*)", docstring, re.MULTILINE)
    return found.group(1) if found else None


def undocumented_arguments(function: Callable[..., Any], docstring: str) -> list[str]:
    text = documented(docstring, "Args") or ""
    named = {name.strip() for names in re.findall(r"^    ([\w, ]+):", text, re.MULTILINE) for name in names.split(",")}
    parameters = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return [name for name in parameters if name not in named and not name.startswith("_")]


def returns_something(function: Callable[..., Any]) -> bool:
    return str(inspect.signature(function).return_annotation) not in ("None", "<class 'NoneType'>")


def raises_itself(function: Callable[..., Any]) -> bool:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


@pytest.mark.parametrize(("name", "function"), of_sdk(), ids=[name for name, _ in of_sdk()])
def test_the_sdk_documents(name: str, function: Callable[..., Any]) -> None:
    docstring = inspect.getdoc(function) or ""
    assert docstring, f"{name} has no docstring"
    assert undocumented_arguments(function, docstring) == []
    if returns_something(function) and name not in NAMED_BY_THEIR_RESULT:
        assert documented(docstring, "Returns"), f"{name} does not document its result"
    if name not in RAISES_NOTHING:
        assert documented(docstring, "Raises"), f"{name} does not document its errors"


@pytest.mark.parametrize(("name", "function"), of_core(), ids=[name for name, _ in of_core()])
def test_the_core_api_documents(name: str, function: Callable[..., Any]) -> None:
    docstring = inspect.getdoc(function) or ""
    assert docstring, f"{name} has no docstring"
    assert undocumented_arguments(function, docstring) == []
    if len(inspect.signature(function).parameters) > 1 and returns_something(function):
        assert documented(docstring, "Returns|Yields"), f"{name} does not document its result"
    if raises_itself(function):
        assert documented(docstring, "Raises"), f"{name} does not document its errors"


def test_the_walk_covers_all_that_the_packages_export() -> None:
    walked = {name for names in SDK.values() for name in names}
    classes = {name for name in client.__all__ if inspect.isclass(getattr(client, name))}
    errors = {name for name in classes if issubclass(getattr(client, name), Exception)}
    values = {"LogLine", "MetricsReport", "QueuedJob", "StoryEvent"}  # fields, no calls
    assert set(client.__all__) - errors - values <= walked
    assert {name for name in core.__all__ if name.endswith("Context")} <= set(CORE)
