"""`det ui`: the address of the web page, with a ticket that logs the browser in."""

from __future__ import annotations

import argparse
import sys
from urllib.parse import urlsplit

from trainmaster.cli.session import connect, say


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: det ui --open"
    parser.add_argument("--open", action="store_true", help="open it in this machine's browser")
    parser.set_defaults(run=_ui)


def _ui(args: argparse.Namespace) -> None:
    master = connect(args)
    link = f"{master.url}/ui/sign-in?ticket={master.page_ticket()}"
    print(link, flush=True)
    if sys.stdout.isatty():
        say("It is good once, for a minute. Whoever opens it is logged in as you.")
        if urlsplit(master.url).hostname in ("localhost", "127.0.0.1", "::1"):
            say("From another machine: forward the port first, as with `ssh -L 8080:localhost:8080 HOST`.")
    if args.open:
        import webbrowser

        webbrowser.open(link)
