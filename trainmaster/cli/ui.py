"""`det ui`: the address of the web page, with a ticket that logs the browser in."""

from __future__ import annotations

import argparse
import sys
from urllib.parse import quote, urlsplit

from trainmaster.cli.session import connect, say
from trainmaster.client.master import Master


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: det ui experiments/5 --open"
    parser.add_argument(
        "page", nargs="?", default="", help="as experiments/5 or trials/17/log; default: the first page"
    )
    parser.add_argument("--open", action="store_true", help="open it in this machine's browser")
    parser.set_defaults(run=_ui)


def link_of(master: Master, page: str = "") -> str:
    """The address of a page, with a ticket that logs a browser in: once, within a minute."""
    then = f"&to={quote(page.removeprefix('/'))}" if page else ""
    return f"{master.url}/ui/sign-in?ticket={master.page_ticket()}{then}"


def _ui(args: argparse.Namespace) -> None:
    master = connect(args)
    link = link_of(master, args.page)
    print(link, flush=True)
    if sys.stdout.isatty():
        say("It is good once, for a minute. Whoever opens it is logged in as you.")
        if urlsplit(master.url).hostname in ("localhost", "127.0.0.1", "::1"):
            say("From another machine: forward the port first, as with `ssh -L 8080:localhost:8080 HOST`.")
    if args.open:
        import webbrowser

        webbrowser.open(link)
