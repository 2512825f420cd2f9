"""The address of a master, as users write it and in full."""

from __future__ import annotations

from urllib.parse import urlsplit

from trainmaster.client.errors import ClientError

DEFAULT_PORT = 8080


def canonical_url(address: str) -> str:
    """Return the master's address in full, by Determined's rules: no scheme means http and port 8080. Raises
    ClientError."""
    text = address.strip()
    default = {"https": 443, "http": 80}.get(text.lower().partition("://")[0], DEFAULT_PORT)
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or default
    except ValueError:  # a port that is not a number, a bracket that is not closed
        raise _not_an_address(address) from None
    extra = parts.username or parts.password or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or extra:
        raise _not_an_address(address)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def _not_an_address(address: str) -> ClientError:
    return ClientError(f"{address!r} is not the address of a master; write for example http://login1:8080.")
