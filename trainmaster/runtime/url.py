"""Parses the master's URL."""

from __future__ import annotations

from typing import Optional

from trainmaster.runtime.record import Record

_USUAL = {"http": 80, "https": 443}


class Url(Record):
    scheme: str  # "http" or "https"
    host: str  # in lower case, an IPv6 address without its brackets
    port: int
    path: str  # without a slash at its end


def split_url(text: str) -> Url:
    """Take an absolute http or https URL apart (RFC 3986); user information, query and fragment are left out.

    Raises ValueError with a sentence.
    """
    scheme, _, rest = text.partition("://")
    scheme = scheme.lower()
    for mark in "#?":
        rest = rest.partition(mark)[0]
    authority, _, path = rest.partition("/")
    authority = authority.rpartition("@")[2]
    if authority.startswith("["):
        host, closed, after = authority[1:].partition("]")
        whole = bool(closed) and after[:1] in ("", ":")
        number = after[1:]
    else:
        host, _, number = authority.partition(":")
        whole = True
    port = _port(number)
    if scheme not in _USUAL or not host or not whole or (number and port is None):
        raise ValueError("%r is no URL of http or https" % text)
    return Url(scheme, host.lower(), port or _USUAL[scheme], ("/" + path).rstrip("/"))


def _port(text: str) -> Optional[int]:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    return number if 0 < number < 65536 else None
