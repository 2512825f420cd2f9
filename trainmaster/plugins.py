"""Finds and loads plugins: dispatchers, searchers, container runtimes and checkpoint storages, ours and those of other
packages.

Each kind has an entry-point group and a contract, a `Protocol` class. A plugin is a class; it is checked against the
contract when it is first loaded. The message of a `PluginError` names the plugin, its package, what is wrong with it,
and the fix.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any


class PluginError(ValueError):
    """No installed plugin has the name, or the plugin does not fulfil its contract. The message is a sentence."""

    @property
    def after_colon(self) -> str:
        """The message without its capital letter and full stop, to stand behind the place in a file that it is
        about."""
        text = str(self)
        return text[:1].lower() + text[1:].rstrip(".")


@dataclass(frozen=True)
class Kind:
    """One kind of plugins.

    Classes are MODULE:CLASS and imported when a plugin of this kind is loaded. `base`: what a plugin inherits. `models`
    and `values`: class attributes that it must have, with what the class in it inherits, or what the value is of.
    `optional`: those of the models that may be None.
    """

    group: str
    noun: str
    contract: str
    version: int
    base: str = "builtins:object"
    models: tuple[tuple[str, str], ...] = ()
    optional: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()


DISPATCHERS = Kind(
    group="trainmaster.dispatchers",
    noun="dispatcher",
    contract="trainmaster.dispatchers.base:Dispatcher",
    version=2,
    models=(
        ("Options", "trainmaster.config.resource_managers:DispatcherOptions"),
        ("UserOptions", "trainmaster.config.user_options:UserOptions"),
    ),
    optional=("UserOptions",),
    values=(("kind", "builtins:str"), ("traits", "trainmaster.dispatchers.base:Traits")),
)
CONTAINERS = Kind(
    group="trainmaster.containers",
    noun="container runtime",
    contract="trainmaster.containers.base:ContainerRuntime",
    version=1,
)
STORAGES = Kind(
    group="trainmaster.storage",
    noun="checkpoint storage",
    contract="trainmaster.storage.contract:ObjectStore",
    version=1,
    models=(("Options", "trainmaster.config.storage:StorageOptions"),),
)
SEARCHERS = Kind(
    group="trainmaster.searchers",
    noun="searcher",
    contract="trainmaster.master.search.method:Searcher",
    version=2,
    base="trainmaster.config.searcher:SearcherOptions",
)


def installed(kind: Kind) -> dict[str, EntryPoint]:
    """Return the entry points of all installed plugins of a kind, by name."""
    return {point.name: point for point in entry_points(group=kind.group)}


@cache
def load(kind: Kind, name: str) -> Any:
    """Return the class of the plugin called `name`, checked against its contract.

    Raises:
        PluginError: the name is not installed, or its plugin cannot be imported or does not fulfil the contract.
    """
    points = installed(kind)
    if name not in points:
        close = difflib.get_close_matches(name, points, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        names = ", ".join(sorted(points)) or "none; reinstall trainmaster"
        raise PluginError(f"There is no {kind.noun} {name!r}.{hint} Installed: {names}.")
    return _checked(kind, points[name])


def _checked(kind: Kind, point: EntryPoint) -> Any:
    package = f" of the package {point.dist.name}" if point.dist is not None else ""
    who = f"The {kind.noun} {point.name!r} ({point.value}{package})"
    try:
        plugin = point.load()
    except Exception as error:
        raise PluginError(f"{who} cannot be imported: {error}. Reinstall the plugin.") from error
    for fault in faults_of(kind, plugin):
        raise PluginError(f"{who} {fault}")
    return plugin


def faults_of(kind: Kind, plugin: Any) -> Iterator[str]:
    """Yield each violation of the contract: the rest of a sentence that begins with the plugin's name, and the fix."""
    if not isinstance(plugin, type):
        yield "is not a class. Correct the entry point."
        return
    version = getattr(plugin, "contract_version", 1)
    if version != kind.version:
        older = isinstance(version, int) and version < kind.version
        yield (
            f"is written for version {version} of the contract (contract_version), and this master has version "
            f"{kind.version}. Update the {'plugin' if older else 'master'}."
        )
    contract = _imported(kind.contract)
    where = kind.contract.replace(":", ".")
    verbs = {
        name: each for name, each in vars(contract).items() if inspect.isfunction(each) and not name.startswith("_")
    }
    for verb in verbs:
        if not inspect.isroutine(getattr(plugin, verb, None)):
            yield f"has no method {verb!r}; it does not fulfil {where}. Update the plugin."
    for verb, wanted in verbs.items():
        if not _takes(inspect.getattr_static(plugin, verb), wanted):
            signature = str(inspect.signature(wanted)).partition(" ->")[0]
            yield f"has a method {verb!r} that cannot be called as {where} has it: {signature}. Update the plugin."
    if not issubclass(plugin, _imported(kind.base)):
        yield f"does not inherit {kind.base.replace(':', '.')}. Update the plugin."
    for name, base in kind.models:
        model = getattr(plugin, name, plugin)
        if model is None and name in kind.optional:
            continue
        if not (isinstance(model, type) and issubclass(model, _imported(base))):
            yield f"has no {name!r} that inherits {base.replace(':', '.')}. Update the plugin."
    for name, base in kind.values:
        if not isinstance(getattr(plugin, name, None), _imported(base)):
            yield f"has no {name!r} that is of {base.replace(':', '.')}. Update the plugin."


def _takes(found: Any, wanted: Any) -> bool:
    """Whether a method takes all arguments that the contract's has, by position and by name."""
    function = getattr(found, "__func__", found)  # of a class method
    names = [
        name for name, each in inspect.signature(wanted).parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    keywords = [name for name, each in inspect.signature(wanted).parameters.items() if each.kind is each.KEYWORD_ONLY]
    if isinstance(found, staticmethod):
        names = names[1:]
    try:
        inspect.signature(function).bind(*names, **dict.fromkeys(keywords))
    except TypeError:
        return False
    except ValueError:  # a built-in, whose signature Python does not know
        return True
    return True


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
