"""TLS to the master, and which certificates are trusted: those of DET_MASTER_CERT_FILE, else one that the user has
accepted, else the system's.

Accepted certificates are in `certs.json` beside the token store, `{<canonical URL>: <PEM>}`, where Determined's client
keeps them too. Such a certificate is trusted itself, for the names that it contains, without a look at its issuer.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import ssl
from typing import Any
from urllib.parse import urlsplit

from trainmaster.client import credentials
from trainmaster.client.errors import ClientError

STORE = "certs.json"
NOVERIFY = "noverify"
FETCH_TIMEOUT = 10.0  # seconds to wait for the master's certificate


def context_for(url: str, certificate: str | None) -> ssl.SSLContext:
    """Return the TLS context for the master at `url`. `certificate` is a PEM file, `noverify`, or None. Raises
    ClientError."""
    if certificate is not None and certificate.lower() == NOVERIFY:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    try:
        context = ssl.create_default_context()
        if certificate:
            context.load_verify_locations(cafile=certificate)
    except OSError as error:
        raise ClientError(
            f"The certificates in {certificate} cannot be read ({error.strerror or error}). "
            "Set DET_MASTER_CERT_FILE to a PEM file, or to noverify."
        ) from None
    if not certificate and (known := accepted(url)):
        try:
            context.load_verify_locations(cadata=known)
        except (ssl.SSLError, ValueError):
            raise ClientError(
                f"The certificate of {url} in {credentials.folder() / STORE} cannot be read. Remove the file, and "
                "confirm the certificate again when `det` asks."
            ) from None
        # Trust the certificate itself and not its issuer; the default from Python 3.13 on.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def server_name(url: str) -> str:
    """Return the name that the certificate must have: DET_MASTER_CERT_NAME, or the address's host."""
    return os.environ.get("DET_MASTER_CERT_NAME") or urlsplit(url).hostname or ""


class HttpsConnection(http.client.HTTPSConnection):
    """A connection whose certificate may have another name than the address."""

    def __init__(self, url: str, certificate: str | None, timeout: float) -> None:
        parts = urlsplit(url)
        self._trusted, self._name = context_for(url, certificate), server_name(url)
        super().__init__(parts.hostname or "", parts.port, timeout=timeout, context=self._trusted)

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._trusted.wrap_socket(self.sock, server_hostname=self._name)


def presented(url: str) -> str:
    """Fetch the certificate (PEM) that the master presents, trusted or not. Raises ClientError."""
    parts = urlsplit(url)
    try:
        return ssl.get_server_certificate((parts.hostname or "", parts.port or 443), timeout=FETCH_TIMEOUT)
    except OSError as error:
        raise ClientError(f"The master at {url} presents no certificate ({error.strerror or error}).") from None


def fingerprint(pem: str) -> str:
    """SHA-256 as `openssl x509 -fingerprint -sha256` prints it."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).digest().hex(":").upper()


def accepted(url: str) -> str | None:
    """Return the certificate that the user has accepted for this address; None if there is none."""
    certificate = _read().get(url)
    return certificate if isinstance(certificate, str) else None


def accept(url: str, pem: str) -> None:
    """Trust a certificate for this address from now on. Raises ClientError."""
    credentials.store(STORE, lambda: {**_read(), url: pem})


def _read() -> dict[str, Any]:
    try:
        data = json.loads((credentials.folder() / STORE).read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
