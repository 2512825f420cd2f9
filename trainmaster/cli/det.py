"""`det`, the users' command line: finds the command that is asked for, runs it, and prints errors as sentences.

Start-up is kept light: the module of a noun is imported when the noun is used, and nothing heavier than the standard
library before it is needed.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing's own costs an import
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

# noun -> (aliases, module, one line of help)
NOUNS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "experiment": (("e", "exp"), "trainmaster.cli.experiment", "create, follow and control experiments"),
    "trial": (("t",), "trainmaster.cli.trial", "show trials and their logs"),
    "checkpoint": (("c",), "trainmaster.cli.checkpoint", "show and download checkpoints"),
    "agent": (("a",), "trainmaster.cli.agent", "the agents, which run jobs on their hosts"),
    "slot": (("s",), "trainmaster.cli.slot", "the slots of agents"),
    "job": (("j",), "trainmaster.cli.job", "the job queue"),
    "workspace": (("w",), "trainmaster.cli.workspace", "workspaces, which contain projects"),
    "project": (("p",), "trainmaster.cli.project", "projects, which contain experiments"),
    "model": (("m",), "trainmaster.cli.model", "the model registry"),
    "template": (("tpl",), "trainmaster.cli.template", "templates: shared parts of configurations"),
    "config-policies": (("cp",), "trainmaster.cli.config_policies", "policies for all configurations"),
    "resources": (("res",), "trainmaster.cli.resources", "usage of slots"),
    "command": (("cmd",), "trainmaster.cli.command", "run a program on the cluster"),
    "notebook": ((), "trainmaster.cli.notebook", "JupyterLab on the cluster"),
    "shell": ((), "trainmaster.cli.shell", "a shell on the cluster, over SSH"),
    "tensorboard": ((), "trainmaster.cli.tensorboard", "TensorBoards of experiments and trials"),
    "task": ((), "trainmaster.cli.task", "waiting and running tasks, their logs, and generic tasks"),
    "tunnel": ((), "trainmaster.cli.tunnel", "connect to a port of a task"),
    "resource-pool": (
        ("rp",),
        "trainmaster.cli.resource_pool",
        "resource pools and the workspaces that they are reserved for",
    ),
    "ui": ((), "trainmaster.cli.ui", "a link that logs your browser in on the web page"),
    "user": (("u",), "trainmaster.cli.user", "log in and out; list, create and change users"),
    "user-group": ((), "trainmaster.cli.user_group", "groups of users"),
    "rbac": ((), "trainmaster.cli.rbac", "roles of users and groups"),
    "token": (("tkn",), "trainmaster.cli.token", "access tokens for programs"),
    "master": ((), "trainmaster.cli.master", "the master and its resource pools"),
    "search": ((), "trainmaster.cli.searching", "try searchers on recorded curves"),
    "preview-search": ((), "trainmaster.cli.search", "how many trials of which length a search would run"),
    "completion": ((), "trainmaster.cli.completion", "let your shell complete commands and options"),
    "version": ((), "trainmaster.cli.version", "versions of this client and of the master"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 for a failure (reported in one sentence), 2 for wrong arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        return _print_version()
    if "_ARGCOMPLETE" in os.environ:  # the shell completes a line
        return _complete()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # names may have characters that the terminal's encoding lacks
    from trainmaster.cli.terminal import protect

    protect()
    try:
        status = _run(arguments)
        sys.stdout.flush()  # here, where a closed pipe can still be distinguished from a failure
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `det ... | head` is not a failure
        return 0


def _run(arguments: list[str]) -> int:
    from trainmaster.cli.session import UsageError, trusts_now
    from trainmaster.client.errors import ClientError, FileFault, NotTrusted

    try:
        words = _words(arguments)
        word = words[0] if words else None
        noun = _noun(words)
        parser = _parser(noun)
        if word == "help":
            parser.print_help()
            return 0
        if word is not None and noun is None:
            raise UsageError(f"there is no command {word!r}{_hint(word)}; `det help` lists the commands")
        if noun is not None:
            from trainmaster.cli.verbs import check_verb

            check_verb(parser.get_default("noun"), words[1:])
        args = parser.parse_args(arguments)
        if args.version:
            return _print_version()
        if getattr(args, "run", None) is None:
            (getattr(args, "parser", None) or parser).print_help(sys.stderr)
            return 2
        try:
            return int(args.run(args) or 0)
        except NotTrusted as error:  # nothing has been sent to the master yet
            if not trusts_now(args, error):
                raise
            return int(args.run(args) or 0)
    except UsageError as error:
        print(f"det: {error}", file=sys.stderr)
        return 2
    except FileFault as error:
        print(error, file=sys.stderr)
        return 1
    except ClientError as error:
        print(f"det: {error}", file=sys.stderr)
        return 1


def _complete() -> int:
    from trainmaster.cli.completion import answer

    aliases = [alias for names, _, _ in NOUNS.values() for alias in names]
    answer(lambda words: _parser(_noun(_words(words))), aliases)
    return 1  # not reached: the answer ends the process


def _print_version() -> int:
    from trainmaster.version import VERSION

    print(f"det {VERSION}")
    return 0


def _words(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments, from the first that is neither an option nor an option's value."""
    skip = False
    for place, argument in enumerate(arguments):
        if skip:
            skip = False
        elif argument in ("-u", "--user", "-m", "--master"):
            skip = True
        elif not argument.startswith("-"):
            return arguments[place:]
    return ()


def _noun(words: Sequence[str]) -> str | None:
    """Return the name of the command that the first word is or is an alias of; None for none."""
    for name, (aliases, _, _) in NOUNS.items():
        if words and words[0] in (name, *aliases):
            return name
    return None


def _hint(word: str) -> str:
    import difflib

    close = difflib.get_close_matches(word, NOUNS, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _parser(noun: str | None) -> argparse.ArgumentParser:
    import argparse
    import importlib

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
            parser.set_defaults(noun=sub)
    return parser


if __name__ == "__main__":
    sys.exit(main())
