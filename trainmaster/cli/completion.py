"""`det completion`: what the shell needs to complete `det`'s commands, and the answers when it asks."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection

import argcomplete
from argcomplete.shell_integration import shellcode

# Where each shell's people put it.
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
    """Tell the shell that asks, by its environment, what could come next, and leave the process.

    Args:
        parser_for: makes the parser that knows what belongs to the words of the line so far.
        aliases: words that are not offered, as each stands for one that is.
    """
    line = os.fsencode(os.environ["COMP_LINE"])[: int(os.environ["COMP_POINT"])]  # bash counts bytes
    words = argcomplete.lexers.split_line(os.fsdecode(line))[3][1:]
    argcomplete.autocomplete(parser_for(words), always_complete_options="long", exclude=() if words else tuple(aliases))


def _print(args: argparse.Namespace) -> None:
    print(shellcode(["det"], shell=args.shell))
