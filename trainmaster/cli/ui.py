"""`det ui`: the address of the web page, with a ticket that logs the browser in."""

from __future__ import annotations

import argparse
import html
import os
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

from trainmaster.cli.session import connect, say
from trainmaster.client import credentials
from trainmaster.client.errors import ClientError
from trainmaster.client.master import Master


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: det ui experiments/5 --open"
    parser.add_argument(
        "page", nargs="?", default="", help="as experiments/5 or trials/17/log; default: the first page"
    )
    parser.add_argument("--open", action="store_true", help="open it in this machine's browser")
    parser.set_defaults(run=_ui)


def link_of(master: Master, page: str = "") -> str:
    """Return the address of a page with a ticket that logs a browser in, once and within a minute.

    The ticket is in the fragment, which browsers send to no server: the logs of proxies do not have it.
    """
    then = f"?to={quote(page.removeprefix('/'))}" if page else ""
    return f"{master.url}/ui/sign-in{then}#ticket={master.page_ticket()}"


def _ui(args: argparse.Namespace) -> None:
    master = connect(args)
    link = link_of(master, args.page)
    print(link, flush=True)
    if sys.stdout.isatty():
        say("It works once, within a minute, and logs in the browser that opens it as you.")
        if urlsplit(master.url).hostname in ("localhost", "127.0.0.1", "::1"):
            say("From another machine: forward the port first, as with `ssh -L 8080:localhost:8080 HOST`.")
    if args.open:
        import webbrowser

        webbrowser.open(_page_that_leads_to(link).as_uri())


def _page_that_leads_to(link: str) -> Path:
    """Write a page for this account alone that leads to the link, and return where. A browser's arguments are visible
    to all accounts of the machine: they name this file instead of the link."""
    folder = credentials.folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        page = folder / "open.html"  # one file, whose link is void after a minute
        page.unlink(missing_ok=True)
        with os.fdopen(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={html.escape(link)}">\n')
    except OSError as error:
        raise ClientError(f"{folder} cannot be written ({error.strerror or error}); open the link by hand.") from None
    return page
