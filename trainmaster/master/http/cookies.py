"""The master's cookies, and how they are kept apart from the cookies of services in jobs."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import HTTPConnection

SESSION = "auth"  # a user's token, as in Determined
PASS = "trainmaster-pass"  # noqa: S105 - good for one task's services, and nothing else
FORM = "trainmaster-form"  # ties the log-in form to the browser that it was sent to
CLIENT = "trainmaster-client"  # distinguishes a known browser from guessers at the same address
_OURS = frozenset((SESSION, PASS, FORM, CLIENT))
_PREFIXES = ("__host-", "__secure-")
_BLANK = "".join(map(chr, range(33)))  # characters that parsers strip around names


def shown(connection: HTTPConnection, name: str) -> list[str]:
    """All values of a cookie in a request: a web page may have set a second one."""
    return [value for key, value, _ in _pairs(connection) if key == name]


def for_services(connection: HTTPConnection) -> str:
    """Return a request's cookies without the master's, however they are written: some servers read a comma as a
    semicolon."""
    return "; ".join(part for _, _, part in _pairs(connection) if not any(map(_names_ours, part.split(","))))


def _names_ours(piece: str) -> bool:
    name, equals, _ = piece.partition("=")
    return bool(equals) and is_ours(name)


def _pairs(connection: HTTPConnection) -> Iterator[tuple[str, str, str]]:
    """Names, values and the parts as they came. A part without `=` is a value without a name (RFC 6265bis, 5.7)."""
    for header in connection.headers.getlist("cookie"):
        for part in header.split(";"):
            name, equals, value = part.partition("=")
            if part.strip(_BLANK):
                yield (name.strip(_BLANK) if equals else ""), value.strip(_BLANK), part.strip(_BLANK)


def is_ours(name: str) -> bool:
    name = name.strip(_BLANK).lower()
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name in _OURS


def of_service(value: str, path: str) -> str | None:
    """Return a service's `Set-Cookie`, restricted to its own `path` and host; None for one that looks like the
    master's."""
    first, *attributes = value.split(";")
    name, equals, _ = first.partition("=")
    # Without a name a browser sends the value alone, which may read like another cookie.
    if not equals or not name.strip(_BLANK) or is_ours(name) or any(c < " " and c != "\t" for c in value):
        return None
    kept = [first]
    at = path
    for attribute in attributes:
        key, _, setting = attribute.partition("=")
        word = key.strip().lower()
        if word == "path" and setting.strip().startswith(path):
            at = setting.strip()
        if word not in ("domain", "path"):
            kept.append(attribute)
    return ";".join([*kept, f" Path={at}"])
