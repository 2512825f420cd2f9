"""`det token`: access tokens for programs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from trainmaster.cli import render
from trainmaster.cli.session import master_url, secret, session, warn_of_argument
from trainmaster.cli.verbs import Verbs, positive
from trainmaster.client import credentials
from trainmaster.client.errors import NoSuchThing
from trainmaster.client.login import transport
from trainmaster.client.users import Users

if TYPE_CHECKING:
    from trainmaster.client import wire


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "list access tokens", "det token list --show-inactive", ["ls"])
    p.add_argument("username", nargs="?", help="only those of this user")
    p.add_argument("--show-inactive", action="store_true", help="revoked and expired ones too")
    render.add_format_options(p)
    p = verbs.add("describe", _describe, "show access tokens", "det token describe 3 4")
    p.add_argument("token_id", type=positive, nargs="+", help="their numbers")
    render.add_format_options(p)
    p = verbs.add("create", _create, "create an access token, shown once", 'det token create -d "nightly runs"')
    p.add_argument("username", nargs="?", help="its user (default: yourself)")
    p.add_argument("-e", "--expiration-days", type=int, metavar="N", help="days until it expires; -1 for never")
    p.add_argument("-d", "--description", help="what it is for")
    render.add_format_options(p)
    p = verbs.add("edit", _edit, "change a token's description", 'det token edit 3 -d "weekly runs"')
    p.add_argument("token_id", type=positive)
    p.add_argument("-d", "--description", required=True, help="what it is for")
    render.add_format_options(p)
    p = verbs.add("revoke", _revoke, "revoke a token, for good", "det token revoke 3")
    p.add_argument("token_id", type=positive)
    p = verbs.add("login", _login, "act as the owner of a token from now on", "det token login")
    p.add_argument("token", nargs="?", help="better left out: typed at a prompt, or read from a pipe")


def _show(args: argparse.Namespace, tokens: list[wire.TokenInfo], raw: Any) -> None:
    headers = ["ID", "User ID", "Description", "Created At", "Expires At", "Revoked", "Token Type"]
    rows = [
        [
            t["id"],
            t["userId"],
            t["description"],
            render.Moment(t["createdAt"]),
            render.Moment(t["expiry"]),
            t["revoked"],
            t["tokenType"].removeprefix("TOKEN_TYPE_"),
        ]
        for t in tokens
    ]
    render.show(args, headers, rows, raw)


def _list(args: argparse.Namespace) -> None:
    tokens = Users(session(args)).tokens(username=args.username, inactive=args.show_inactive)
    _show(args, tokens, tokens)


def _describe(args: argparse.Namespace) -> None:
    tokens = Users(session(args)).tokens(ids=args.token_id, inactive=True)
    if missing := set(args.token_id) - {token["id"] for token in tokens}:
        raise NoSuchThing(404, f"There is no access token {min(missing)}.")
    _show(args, tokens, tokens)


def _create(args: argparse.Namespace) -> None:
    master = Users(session(args))
    user = master.user(args.username) if args.username else master.me()
    made = master.create_token(user["id"], days=args.expiration_days, description=args.description)
    render.show(args, ["Token ID", "Access Token"], [[made["tokenId"], made["token"]]], made)


def _edit(args: argparse.Namespace) -> None:
    changed = Users(session(args)).edit_token(args.token_id, description=args.description)
    _show(args, [changed], changed)


def _revoke(args: argparse.Namespace) -> None:
    Users(session(args)).edit_token(args.token_id, revoke=True)
    print(f"Revoked token {args.token_id}")


def _login(args: argparse.Namespace) -> None:
    url = master_url(args)
    http = transport(url)
    token = args.token
    if token is None:
        token = secret("Access token: ", "an access token")
    else:
        warn_of_argument("The token")
    http.token = token
    user = Users(http).me()["username"]
    credentials.remember(url, user, token, active=True)
    print(f"Logged in as user '{user}'")
