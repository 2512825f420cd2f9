"""Every public method of the SDK and of the Core API documents its arguments, its result and its errors.

In the SDK, a class documents the arguments that several of its methods have, and `Resource` the errors that any call
may raise; a method that only calls another one names it: "As `Master.pause`."
"""

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
CORE += ("SearcherOperation", "TrainContext", "init")  # type: ignore[assignment]
GENERAL_ERRORS = ("The master does not answer, or is not ready.", "The master refuses the call.")
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


OF_CLASSES = {
    name: found
    for module, names in SDK.items()
    for name in names
    if inspect.isclass(found := getattr(importlib.import_module(f"trainmaster.client.{module}"), name))
}
SDK_DOCS = {
    f"{kind}.{name}": inspect.getdoc(getattr(cls, name)) or "" for kind, cls in OF_CLASSES.items() for name in dir(cls)
}


def documented(docstring: str, section: str) -> str | None:
    """The text of a section; None where there is none."""
    found = re.search(rf"^(?:{section}):\n((?:(?:    .*)?\n?)*)", docstring, re.MULTILINE)
    return found.group(1) if found else None


def complete(name: str, docstring: str) -> str:
    """The docstring of a method of the SDK, with those of its class and of the call that it names."""
    named = re.search(r"(?:^| )As `(\w+\.\w+)`\.$", docstring, re.MULTILINE)
    of_class = inspect.getdoc(OF_CLASSES.get(name.partition(".")[0])) or ""
    return "\n\n".join((docstring, complete(named[1], SDK_DOCS[named[1]]) if named else "", of_class))


def undocumented_arguments(function: Callable[..., Any], docstring: str) -> list[str]:
    sections = re.findall(r"^(?:Args|Arguments of several calls):\n((?:(?:    .*)?\n?)*)", docstring, re.MULTILINE)
    entries = re.findall(r"^    ([\w, ]+):", "\n".join(sections), re.MULTILINE)
    named = {name.strip() for names in entries for name in names.split(",")}
    parameters = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return [name for name in parameters if name not in named and not name.startswith("_")]


def returns_something(function: Callable[..., Any]) -> bool:
    return str(inspect.signature(function).return_annotation) not in ("None", "<class 'NoneType'>")


def raises_itself(function: Callable[..., Any]) -> bool:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


@pytest.mark.parametrize(("name", "function"), of_sdk(), ids=[name for name, _ in of_sdk()])
def test_the_sdk_documents(name: str, function: Callable[..., Any]) -> None:
    own = inspect.getdoc(function) or ""
    assert own, f"{name} has no docstring"
    docstring = complete(name, own)
    assert undocumented_arguments(function, docstring) == []
    if returns_something(function) and name not in NAMED_BY_THEIR_RESULT:
        assert documented(docstring, "Returns"), f"{name} does not document its result"
    if raises_itself(function):
        assert documented(docstring, "Raises"), f"{name} does not document its errors"
    assert [error for error in GENERAL_ERRORS if error in own] == [], "its class says so"


def test_every_sdk_class_documents_common_errors() -> None:
    silent = {"Column", "Condition"}  # values, without calls
    for name, kind in OF_CLASSES.items():
        docstrings = [inspect.getdoc(base) or "" for base in inspect.getmro(kind)]
        assert name in silent or any("may raise MasterUnreachable" in docstring for docstring in docstrings), name


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
