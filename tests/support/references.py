"""Resolves what docstrings and comments of a package refer to: names in backticks, and the exceptions after "Raises".

A plain word is known where the module, or one that it imports, uses it; from further away only as the name of a
definition: so a renamed parameter is found even where some other module has a variable of its old name. REST fields
(`maxSlots`) are known in snake case. Names of the outside world are given.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import keyword
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = Function | ast.ClassDef | ast.Module
QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
WORD = re.compile(r"[A-Za-z_]\w*")
FILE = re.compile(r"(?:[\w*-]+/)*[\w.-]+\.(?:py|md|js|css|j2|sh|toml|yaml|json|lock|crt|key)")
FOLDER = re.compile(r"(?:[\w.-]+/)+")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PLACEHOLDER = re.compile(r"[A-Z]{3}")  # PAGE_VIEW.js has one too, and so do names of variables
# "Raises Rejected, Transient or a.Ambiguous": names that begin with a capital, up to the first other word.
EXCEPTION = r"(?:\w+\.)*[A-Z]\w*"
RAISES = re.compile(rf"\b[Rr]aises? ({EXCEPTION}(?:(?:, and |, or |, | and | or ){EXCEPTION})*)")
RAISES_SECTION = re.compile(r"^ *Raises:\n((?: +.*\n?)+)", re.MULTILINE)
RAISES_ENTRY = re.compile(rf"^ *({EXCEPTION}(?:, {EXCEPTION})*):", re.MULTILINE)


class Passage(NamedTuple):
    """A docstring or comment, with the parameters of the functions around it."""

    line: int
    text: str
    parameters: frozenset[str]


@dataclass
class Module:
    """What a module defines, imports, uses and says."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> dict[str, str]:
        """Dotted origins by the names that they have here."""
        origins: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                origins |= {n.asname or n.name: n.name for n in node.names}
            elif isinstance(node, ast.ImportFrom):
                origins |= {n.asname or n.name: f"{node.module}.{n.name}" for n in node.names}
        return origins

    @cached_property
    def globals(self) -> set[str]:
        return {name for node in self.tree.body for name in _defined(node)} | set(self.imports)

    @cached_property
    def classes(self) -> dict[str, set[str]]:
        """Names of the members of each class, and of all attributes that it uses."""
        return {
            node.name: {name for child in node.body for name in _defined(child)}
            | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
            for node in self.nodes
            if isinstance(node, ast.ClassDef)
        }

    @cached_property
    def tables(self) -> dict[str, set[str]]:
        """Names of the columns of each table, by the table's name."""
        return {
            child.value.value: self.classes[node.name]  # type: ignore[misc]
            for node in self.nodes
            if isinstance(node, ast.ClassDef)
            for child in node.body
            if isinstance(child, ast.Assign) and "__tablename__" in _defined(child)
            if isinstance(child.value, ast.Constant)
        }

    @cached_property
    def bases(self) -> dict[str, set[str]]:
        """Names of the base classes of each class."""
        return {
            node.name: {n.id for base in node.bases for n in ast.walk(base) if isinstance(n, ast.Name)}
            for node in self.nodes
            if isinstance(node, ast.ClassDef)
        }

    @cached_property
    def definitions(self) -> set[str]:
        """Names of its classes, functions, fields and constants."""
        holders = [node for node in self.nodes if isinstance(node, ast.Module | ast.ClassDef)]
        return {name for holder in holders for child in holder.body for name in _defined(child)}

    @cached_property
    def words(self) -> set[str]:
        """Every identifier of the module, and every word of its texts that are no docstrings."""
        docstrings = {node.body[0].value for node in self.nodes if _has_docstring(node)}  # type: ignore[attr-defined]
        words = set()
        for node in self.nodes:
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                    words.add(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    words.add(name)
                case ast.Constant(value=str(text)) if node not in docstrings:
                    words |= {text, *WORD.findall(text)}
        return words | {word for names in self.imports.items() for name in names for word in name.split(".")}

    @property
    def passages(self) -> Iterator[Passage]:
        for node, parameters in _documented(self.tree, frozenset()):
            yield Passage(node.body[0].lineno, ast.get_docstring(node, clean=False) or "", parameters)
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield Passage(token.start[0], token.string, frozenset())


class Package:
    """The modules of a package by their dotted names."""

    def __init__(self, root: Path, outside: frozenset[str] = frozenset()) -> None:
        """Read the package whose folder is `root`. `outside`: names that are known beside its own."""
        self.root = root
        self.outside = outside
        self.modules: Mapping[str, Module] = {
            ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__"): Module(
                path, path.read_text()
            )
            for path in sorted(root.rglob("*.py"))
        }
        self._reach: dict[str, set[str]] = {}

    def broken_names(self) -> list[str]:
        """Return as `path:line: name` what stands in backticks and neither the package nor the outside has."""
        return [
            f"{module.path.relative_to(self.root)}:{line + text.count(chr(10), 0, match.start())}: {match[1]}"
            for name, module in self.modules.items()
            for line, text, parameters in module.passages
            for match in QUOTED.finditer(text)
            if match[1] not in self.outside | parameters and not self._resolves(name, match[1], parameters)
        ]

    def broken_names_of(self, page: str, words: frozenset[str]) -> list[str]:
        """Return as `line: name` what stands in backticks in a page of Markdown and the package does not have. `words`:
        names and paths of the rest of the repository."""
        return [
            f"{page.count(chr(10), 0, match.start()) + 1}: {match[1]}"
            for match in QUOTED.finditer(FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), page))
            if not self._exists(match[1], words)
        ]

    def _exists(self, quoted: str, words: frozenset[str]) -> bool:
        if PLACEHOLDER.search(quoted) or {quoted, quoted.rstrip("/")} & (words | self._words):
            return True
        if FILE.fullmatch(quoted) or FOLDER.fullmatch(quoted):
            return False
        first, *rest = quoted.removesuffix("()").split(".")
        if not NAME.fullmatch(quoted) or (first in self._classes and rest and rest[0] in self._members(first)):
            return True
        return all(word in self._words or word in words for word in (first, *rest))

    def broken_raises(self) -> list[str]:
        """Return as `path:line: name` what is said to be raised and is no exception that the module can meet."""
        return [
            f"{module.path.relative_to(self.root)}:{line}: {exception}"
            for name, module in self.modules.items()
            for line, text, _ in module.passages
            for exception in _raised(text)
            if exception not in self.outside and not self._can_meet(name, exception)
        ]

    def _resolves(self, name: str, quoted: str, parameters: frozenset[str]) -> bool:
        if FILE.fullmatch(quoted):
            return quoted in self._words or (self.root.parent / quoted).exists() or any(self.root.rglob(quoted))
        if not NAME.fullmatch(quoted):
            return True  # a command, a value, an expression
        first, *rest = quoted.removesuffix("()").split(".")
        if not rest:
            return self._knows(name, first)
        if first in sys.stdlib_module_names:
            return True
        if first in self._classes:
            return rest[0] in self._members(first)
        if first in self._tables:
            return rest[0] in self._tables[first]
        modules = self._short_names.get(first, ())
        if any(f"{module}.{rest[0]}" in self.modules or rest[0] in self.modules[module].globals for module in modules):
            return True
        if modules and first in self.modules[name].globals and first not in parameters:
            return False
        # An object, a section of a configuration, a table: its parts are known, if not its shape.
        return all(word in parameters or self._knows(name, word) for word in (first, *rest))

    def _knows(self, name: str, word: str) -> bool:
        snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", word).lower()
        if word in self._definitions or (snake != word and {word, snake} & self._words):
            return True
        if hasattr(builtins, word) or keyword.iskeyword(word) or word in sys.stdlib_module_names:
            return True
        part = name.split(".")[1:2]
        if any(other.split(".")[1:2] in (part, [word]) for other in self._short_names.get(word, ())):
            return True
        return any(word in self.modules[other].words for other in self._reached(name))

    def _can_meet(self, name: str, exception: str) -> bool:
        module, _, last = exception.rpartition(".")
        if module in self._short_names:
            return any(last in self.modules[other].globals for other in self._short_names[module])
        if hasattr(builtins, last) or (module and hasattr(importlib.import_module(module), last)):
            return True
        siblings = [other for other in self.modules if other.rpartition(".")[0] == name.rpartition(".")[0]]
        if any(last in self.modules[other].globals for other in [*self._reached(name), *siblings]):
            return True
        standard = {
            o for n, o in self.modules[name].imports.items() if n == o and o.split(".")[0] in sys.stdlib_module_names
        }
        return any(hasattr(importlib.import_module(o), last) for o in standard)

    def _reached(self, start: str) -> set[str]:
        """Return the modules that `start` imports, at first or second hand, and itself."""
        if start not in self._reach:
            reached, waiting = set(), [start]
            while waiting:
                name = waiting.pop()
                if name in self.modules and name not in reached:
                    reached.add(name)
                    for origin in self.modules[name].imports.values():
                        waiting += [origin, origin.rpartition(".")[0]]
            self._reach[start] = reached
        return self._reach[start]

    def _members(self, name: str) -> set[str]:
        """Return what a class and its base classes define."""
        members: set[str] = set()
        waiting, done = {name}, set()
        while waiting:
            done.add(current := waiting.pop())
            members |= self._classes[current]
            waiting |= (self._bases[current] & self._classes.keys()) - done
        return members

    @cached_property
    def _short_names(self) -> dict[str, list[str]]:
        short: dict[str, list[str]] = {}
        for name in self.modules:
            parts = name.split(".")
            for at in range(len(parts)):
                short.setdefault(".".join(parts[at:]), []).append(name)
        return short

    @cached_property
    def _classes(self) -> dict[str, set[str]]:
        return _united(module.classes for module in self.modules.values())

    @cached_property
    def _tables(self) -> dict[str, set[str]]:
        """Names of the columns of each table of the database."""
        return _united(module.tables for module in self.modules.values())

    @cached_property
    def _bases(self) -> dict[str, set[str]]:
        return _united(module.bases for module in self.modules.values())

    @cached_property
    def _definitions(self) -> set[str]:
        return {name for module in self.modules.values() for name in module.definitions}

    @cached_property
    def _words(self) -> set[str]:
        return {word for module in self.modules.values() for word in module.words}


def _united(parts: Iterable[Mapping[str, set[str]]]) -> dict[str, set[str]]:
    whole: dict[str, set[str]] = {}
    for part in parts:
        for name, members in part.items():
            whole[name] = whole.get(name, set()) | members
    return whole


def _raised(text: str) -> Iterator[str]:
    for match in RAISES.finditer(" ".join(text.split())):
        yield from re.findall(EXCEPTION, match[1])
    for section in RAISES_SECTION.finditer(text):
        for entry in RAISES_ENTRY.finditer(section[1]):
            yield from entry[1].split(", ")


def _defined(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Assign(targets=targets):
            return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.If() | ast.Try():
            return {name for child in [*node.body, *node.orelse] for name in _defined(child)}
    return set()


def _has_docstring(node: ast.AST) -> bool:
    return isinstance(node, Documented) and ast.get_docstring(node, clean=False) is not None


def _documented(node: ast.AST, parameters: frozenset[str]) -> Iterator[tuple[Documented, frozenset[str]]]:
    if isinstance(node, Function):
        own = node.args
        parameters |= {a.arg for a in [*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg] if a}
    if _has_docstring(node):
        assert isinstance(node, Documented)
        yield node, parameters
    for child in ast.iter_child_nodes(node):
        yield from _documented(child, parameters)


if __name__ == "__main__":
    package = Package(Path(sys.argv[1]))
    print(*package.broken_names(), *package.broken_raises(), sep="\n")
