"""`det`: experiments, trials and checkpoints from the command line.

Start-up is kept light: a noun's module is imported when the noun is used, and nothing heavier than the standard
library is imported before it is needed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

# noun -> (aliases, module, one line of help)
NOUNS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "experiment": (("e", "exp"), "trainmaster.cli.experiment", "create, watch and steer experiments"),
    "trial": (("t",), "trainmaster.cli.trial", "look at trials and their logs"),
    "checkpoint": (("c",), "trainmaster.cli.checkpoint", "look at and download checkpoints"),
    "job": (("j",), "trainmaster.cli.job", "the job queue"),
    "user": (("u",), "trainmaster.cli.user", "log in and out"),
    "master": (("m",), "trainmaster.cli.master", "the master itself"),
    "preview-search": ((), "trainmaster.cli.search", "how many trials of which length a search would run"),
    "version": ((), "trainmaster.cli.version", "versions of this client and of the master"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, 1 for a failure told in one sentence, 2 for a command that is written wrongly."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `det ... | head` is no failure
        return 0


def _run(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        from trainmaster.version import VERSION

        print(f"det {VERSION}")
        return 0
    parser = _parser(_noun(arguments))
    args = parser.parse_args(arguments)
    if getattr(args, "run", None) is None:
        (getattr(args, "parser", None) or parser).print_help()
        return 2
    from trainmaster.cli.session import UsageError
    from trainmaster.client.errors import ClientError

    try:
        return int(args.run(args) or 0)
    except UsageError as error:
        print(f"det: {error}", file=sys.stderr)
        return 2
    except ClientError as error:
        print(f"det: {error}", file=sys.stderr)
        return 1


def _noun(arguments: Sequence[str]) -> str | None:
    """The noun among the arguments, so that only its module is loaded."""
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in ("-u", "--user", "-m", "--master"):
            skip = True
        elif not argument.startswith("-"):
            for name, (aliases, _, _) in NOUNS.items():
                if argument == name or argument in aliases:
                    return name
            return None
    return None


def _parser(noun: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="det",
        description="Hyperparameter search on the clusters you have.",
        epilog="Example: det experiment create search.yaml . --follow-first-trial",
    )
    parser.add_argument(
        "-m",
        "--master",
        metavar="ADDRESS",
        help="the master's address (default: DET_MASTER, else localhost:8080)",
    )
    parser.add_argument("-u", "--user", metavar="NAME", help="act as this user (default: the one who logged in)")
    parser.add_argument("-V", "--version", action="store_true", help="print the version of this client")
    nouns = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (aliases, module, text) in NOUNS.items():
        sub = nouns.add_parser(name, aliases=aliases, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(parser=sub)
        if name == noun:
            importlib.import_module(module).add_to(sub)
    return parser


if __name__ == "__main__":
    sys.exit(main())
