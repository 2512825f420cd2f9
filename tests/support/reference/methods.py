"""Records which methods of the published SDK the tests' programs call directly."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

# Begins each program: `answer(x)` hands a JSON value back; the names of what it calls are printed when it ends.
PRELUDE = """
import atexit, functools, inspect, json, sys
from determined.experimental import client

def answer(x):
    print("ANSWER", json.dumps(x))

def _methods():
    for name, member in list(vars(client).items()):
        if inspect.isfunction(member) and member.__module__ == client.__name__ and not name.startswith("_"):
            yield client, name, member
        elif inspect.isclass(member) and member.__module__.startswith("determined.common.experimental"):
            for inner, method in list(vars(member).items()):
                if inspect.isfunction(method) and not inner.startswith("_"):
                    yield member, inner, method

def _name(holder, name):
    # The module's functions are the methods of a Determined of its own.
    ours = holder is client or (holder is client.Determined and hasattr(client, name))
    return f"client.{name}" if ours else f"{holder.__name__}.{name}"

def _watched(name, function):
    @functools.wraps(function)
    def call(*arguments, **options):
        if sys._getframe(1).f_code.co_filename == "<string>":
            _called.add(name)
        return function(*arguments, **options)
    return call

_called = set()
_all = {_name(holder, name) for holder, name, _ in _methods()}
for _holder, _attribute, _function in list(_methods()):
    setattr(_holder, _attribute, _watched(_name(_holder, _attribute), _function))
atexit.register(lambda: print("\\nCALLED", json.dumps(sorted(_called))))
"""
called: set[str] = set()  # by all programs of this session


def published(environment: Path) -> set[str]:
    """Every public function of `determined.experimental.client` and every public method of its classes."""
    program = PRELUDE + "answer(sorted(_all))"
    said = subprocess.run(
        [str(environment / "bin" / "python"), "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    return set(json.loads(_after("ANSWER", said.stdout)))


def note(output: str) -> str:
    """Note what a program called; the JSON of its answer."""
    called.update(json.loads(_after("CALLED", output)))
    return _after("ANSWER", output)


def _after(word: str, output: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith(f"{word} ")]
    return line.removeprefix(f"{word} ")
