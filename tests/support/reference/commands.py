"""The commands of the published `det`, from its own parser, and those that our tests run, from their own text."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[2] / "process" / "contract"
RUNNERS = frozenset({"batch", "det", "rows", "values"})  # what of ours runs the published `det`

_WALK = """
import argparse, json
from determined.cli import _declarative_argparse as declared, cli
parser = cli.make_parser()
declared.add_args(parser, cli.all_args_description)
leaves = []
def walk(parser, path):
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        leaves.append(path)
    for action in below:
        names = {}
        for name, child in action.choices.items():
            names.setdefault(id(child), (child, []))[1].append(name)
        for child, known in names.values():
            if known != ["help"]:
                walk(child, [*path, known])
walk(parser, [])
print(json.dumps(leaves))
"""


@dataclass(frozen=True)
class Command:
    """One command; each of its words may be written in several ways, the first of which is its name."""

    words: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return " ".join(names[0] for names in self.words)

    def is_begun_by(self, words: list[str]) -> bool:
        return len(words) >= len(self.words) and all(
            word in names for word, names in zip(words, self.words, strict=False)
        )


def published(environment: Path) -> list[Command]:
    """Every command of the published parser; `deploy`, whose own are built only when it is called, is one."""
    said = subprocess.run(
        [str(environment / "bin" / "python"), "-c", _WALK], capture_output=True, text=True, check=True
    )
    return [Command(tuple(tuple(names) for names in path)) for path in json.loads(said.stdout)]


def written(folder: Path = HERE) -> Iterator[list[str]]:
    """The words of each command that the tests in the folder run, as far as they are constant."""
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) in RUNNERS:
                if _name(node.func) == "batch":
                    for argument in node.args[1:]:
                        yield _words(argument)
                else:
                    yield [word for argument in node.args for word in _words(argument)]


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _words(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Starred):
        node = node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [word for element in node.elts for word in _words(element)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.removeprefix("!").split()
    if isinstance(node, ast.JoinedStr):
        text = "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)  # type: ignore[misc]
        return text.removeprefix("!").split()
    return ["\0"]
