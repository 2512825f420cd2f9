"""Turns a master's answers, and failures to reach it, into results or errors with advice."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import Any

from trainmaster.client.errors import HostNotFound, MasterUnreachable, NotTrusted, api_error

Json = dict[str, Any]
NOT_READY = (502, 503, 504)  # while a master starts, or from a proxy before it


def unreachable(url: str, error: Exception) -> MasterUnreachable:
    """Return the error of a connection that failed or broke."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotTrusted(
            f"The certificate of the master at {url} is not trusted ({error.verify_message}). "
            "Set DET_MASTER_CERT_FILE to the file with its authority's certificate."
        )
    if isinstance(error, http.client.BadStatusLine | ConnectionResetError) and url.startswith("http:"):
        return MasterUnreachable(
            f"The master at {url} ends the connection without an answer. If it speaks TLS, write "
            f"https{url.removeprefix('http')}; set the address with -m or DET_MASTER."
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    kind = HostNotFound if isinstance(error, socket.gaierror) else MasterUnreachable
    return kind(
        f"The master at {url} does not answer ({reason}). Is it running, and is the address right? "
        "Set it with -m or DET_MASTER."
    )


def not_ready(url: str, status: int, content: bytes) -> MasterUnreachable:
    """Return the error of an answer with one of the statuses NOT_READY: its own message, if it is the master's."""
    body = _parsed(content)
    if isinstance(body, dict) and body.get("message"):
        return MasterUnreachable(str(body["message"]))
    reason = http.client.responses.get(status, "")
    return MasterUnreachable(f"The master at {url} is not ready ({status} {reason}). Try again in a moment.")


def answer_of(status: int, content: bytes) -> Json:
    """Return the JSON of an answer. Raises an APIError."""
    body = _parsed(content)
    if status >= 400:
        raise api_error(status, body)
    if isinstance(body, dict):
        return body
    raise api_error(
        status, "The server that answered is not a master. Is the address right? Set it with -m or DET_MASTER."
    )


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content) if content else {}
    except ValueError:
        return content[:200].decode(errors="replace").rstrip("\ufffd")
