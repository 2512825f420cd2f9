"""Names that are a segment of an address of the API, as those of models, templates, users, pools and labels."""

from __future__ import annotations


def no_segment(name: str) -> str:
    """Return why a name cannot be a segment of an address; empty where it can.

    A slash separates segments, and many servers and proxies decode `%2F` on the way. Browsers, clients and proxies
    remove the segments `.` and `..` (RFC 3986, 5.2.4), in whichever spelling.
    """
    if "/" in name:
        return "it has a slash"
    return only_dots(name)


def only_dots(name: str) -> str:
    """Return why a name cannot be the end of an address, which may have slashes; empty where it can."""
    return "browsers and proxies remove it from addresses" if name in (".", "..") else ""
