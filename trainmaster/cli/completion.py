"""`det completion`: prints the code with which a shell completes `det`'s commands, and answers that code's queries."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection

import argcomplete
from argcomplete.shell_integration import shellcode

# Where each shell's users put it.
SHELLS = {
    "bash": 'eval "$(det completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(det completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "det completion fish > ~/.config/fish/completions/det.fish",
}


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(["Examples:", *(f"  {line}" for line in SHELLS.values())])
    parser.add_argument("shell", choices=list(SHELLS), help="the shell that is to complete")
    parser.set_defaults(run=_print)


def answer(parser_for: Callable[[list[str]], argparse.ArgumentParser], aliases: Collection[str]) -> None:
    """Write the possible completions of a line to the shell, which describes the line in the environment, and exit.

    Args:
        parser_for: Returns the parser for the words of the line so far.
        aliases: Words that are not offered, as their full names are.
    """
    line = os.fsencode(os.environ["COMP_LINE"])[: int(os.environ["COMP_POINT"])]  # bash counts bytes
    words = argcomplete.lexers.split_line(os.fsdecode(line))[3][1:]
    argcomplete.autocomplete(parser_for(words), always_complete_options="long", exclude=() if words else tuple(aliases))


def _print(args: argparse.Namespace) -> None:
    print(shellcode(["det"], shell=args.shell))
