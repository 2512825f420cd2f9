"""Checks texts of the API before they become a word of a program, a part of a path or an address on this machine.

A job chooses some of what the API returns, and its owner's colleagues read it: such a text must not become an option of
`ssh`, a folder outside of the one that was named, or another host in a browser.
"""

from __future__ import annotations

import re

from trainmaster.client.errors import ClientError

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,99}")
_NOT_IN_ACCOUNT = re.compile(r"[\x00-\x1f\x7f/:]")  # what no account's name has


def checked_id(text: str, what: str) -> str:
    """Return an id that can stand as a host for ssh and as a name of a folder.

    Args:
        text: The id.
        what: What it identifies, for the error.

    Raises:
        ClientError: It begins with a dash or a dot, or has characters that ids do not have.
    """
    if not _ID.fullmatch(text):
        raise ClientError(f"The master names a {what} {text!r}, which is not an id; nothing was started.")
    return text


def checked_account(text: str) -> str:
    """Return the name of an account on a node, as the value of an option.

    Raises:
        ClientError: It is empty, begins with a dash, or has characters that names of accounts do not have.
    """
    if not text or text.startswith("-") or len(text) > 256 or _NOT_IN_ACCOUNT.search(text):
        raise ClientError(f"The master names the account {text!r}, which cannot be one; nothing was started.")
    return text


def checked_path(text: str) -> str:
    """Return the path of a page of the master, which is appended to the master's address.

    Raises:
        ClientError: It does not begin with a slash, so that it would change the host, or has control characters.
    """
    if not text.startswith("/") or not text.isprintable() or " " in text:
        raise ClientError(f"The master names the page {text!r}, which is not a path of it; nothing was opened.")
    return text
