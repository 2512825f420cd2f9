"""Every verb of `det`: its help with an example that works as it is written, and the formats of its lists."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from trainmaster.cli import det

FORMATS = {"--json", "--csv", "--yaml"}


def walked(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The verbs below, each once, by all its words."""
    (below,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)] or [None]  # type: ignore[list-item]
    if below is None:
        yield " ".join(words), parser
        return
    seen = set()
    for name, sub in below.choices.items():
        if id(sub) not in seen:  # an alias otherwise
            seen.add(id(sub))
            yield from walked(sub, (*words, name))


def verbs() -> dict[str, argparse.ArgumentParser]:
    found: dict[Any, Any] = {}
    for noun in det.NOUNS:
        whole = det._parser(noun)
        (nouns,) = [action for action in whole._actions if isinstance(action, argparse._SubParsersAction)]
        found.update(walked(nouns.choices[noun], (noun,)))
    return found


VERBS = verbs()
LISTS = [name for name in VERBS if name.rpartition(" ")[2].startswith("list")]
OF_SHELLS = "completion"  # has an example for each shell, which tests/process/cli/test_completion.py runs


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def test_there_are_as_many_as_one_thinks() -> None:
    assert len(VERBS) > 150
    assert len(LISTS) > 20


@pytest.mark.parametrize("name", [name for name in VERBS if name != OF_SHELLS])
def test_every_verb_shows_an_example_that_can_be_typed(name: str) -> None:
    helped = VERBS[name].format_help()
    _, _, shown = helped.partition("\nExample: ")
    line = shown.strip()
    assert line.startswith("det "), f"det {name} -h ends with no example: {helped[-300:]}"
    words = shlex.split(line)[1:]
    words = words[: words.index("|")] if "|" in words else words
    args = det._parser(det._noun(det._words(words))).parse_args(words)
    assert callable(args.run)
    noun, *rest = name.split()
    assert words[0] in (noun, *det.NOUNS[noun][0])
    assert [word for word in words[1:] if word in rest] == rest, f"{line} is no example of det {name}"


@pytest.mark.parametrize("name", LISTS)
def test_every_list_can_be_read_by_programs(name: str) -> None:
    parser = VERBS[name]
    assert options(parser) >= FORMATS
    positional = ["1" for action in parser._actions if not action.option_strings and action.nargs is None]
    for one in FORMATS:
        with pytest.raises(SystemExit):
            parser.parse_args([*positional, one, next(iter(FORMATS - {one}))])
