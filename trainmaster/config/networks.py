"""Types for networks and web origins in the master's configuration."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from trainmaster.config.messages import in_words
from trainmaster.config.shapes import Line, wrong


def _network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value.strip()))
    except ValueError:
        raise wrong(
            f"a network such as 10.1.0.0/16 or one address is wanted, found {value!r}; the bits behind the mask are 0"
        ) from None


Network = Annotated[Line, AfterValidator(_network)]
"""An address, or a network as `address/bits`; kept in its canonical form."""


@dataclass(frozen=True)
class Origin:
    """Scheme, host and port, as browsers compare them."""

    scheme: str
    host: str  # lower case; an IPv6 address in brackets
    port: int | None  # None: the scheme's own

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}"

    @property
    def netloc(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"

    def own_port(self, scheme: str, masters: int) -> int | None:
        """Return the port that distinguishes this origin from the master's, where both are served directly with the
        same `scheme`; None if there is none."""
        return self.port if self.scheme == scheme and self.port not in (None, masters) else None


def origin_of(url: str) -> Origin | None:
    """Return the origin of an address; None if it is not `http` or `https`, or has more than scheme, host and port."""
    try:
        parts = urlsplit(url.strip().rstrip("/"))
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    extra = parts.path or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in ("http", "https") or not host or extra or not _is_name(host):
        return None
    usual = 443 if parts.scheme == "https" else 80
    return Origin(parts.scheme, f"[{host}]" if ":" in host else host, None if port == usual else port)


def _is_name(host: str) -> bool:
    return all(c.isascii() and (c.isalnum() or c in ".-_:") for c in host)


def _services_url(value: Any) -> Origin:
    if isinstance(value, Origin):
        return value
    origin = origin_of(value) if isinstance(value, str) else None
    if origin is None:
        raise wrong(
            f"an address such as https://services.example.org is wanted, without a path; found {in_words(value)}"
        )
    return origin


ServicesUrl = Annotated[Origin, BeforeValidator(_services_url), PlainSerializer(str)]
