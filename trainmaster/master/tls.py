"""The certificate that the master serves TLS with: checked before it is used, and reloaded when its files change.

A new pair of files takes effect once it is complete: it is loaded into a context of its own first, so that a file that
is still being written, or a key of another certificate, changes nothing. Open connections keep the certificate that
they began with.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from trainmaster.config.master import Tls
from trainmaster.master import authority

log = logging.getLogger(__name__)

CHECK_PERIOD = 60.0  # seconds between two checks of the files
SOON = dt.timedelta(days=21)  # time before a certificate's expiry at which a warning is logged


class BadCertificate(RuntimeError):
    """The certificate cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Certificate:
    """The content of a certificate file: the master's own certificate first, then those of its issuers."""

    chain: Sequence[x509.Certificate]

    @property
    def ends(self) -> dt.datetime:
        return self.chain[0].not_valid_after_utc

    @property
    def names(self) -> list[str]:
        """Hosts and addresses that it is valid for."""
        try:
            names = self.chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return []
        return [str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)]

    @property
    def roots(self) -> list[x509.Certificate]:
        """The self-signed ones, which no system trusts by default."""
        return [one for one in self.chain if one.issuer == one.subject]


class ServedTls:
    """The certificate of one master. Thread-safe."""

    def __init__(self, config: Tls) -> None:
        """Raise BadCertificate."""
        self._config = config
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="certificate", daemon=True)
        _renew(config)
        self._anchors, self._context = self._read()
        self._seen = self._stamps()

    @property
    def files(self) -> tuple[str, str]:
        """Paths of the certificate and of its key."""
        return self._config.cert, self._config.key

    @property
    def anchors(self) -> str:
        """Certificates that jobs must trust to connect to this master (PEM); empty where every system does already."""
        return self._anchors

    def serve(self, live: ssl.SSLContext) -> None:
        """From now on answer handshakes of this context with the newest certificate."""

        def newest(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            connection.context = self._context

        # Replaced as a whole: a handshake between loading a certificate and its key into `live` would fail.
        live.sni_callback = newest
        live.minimum_version = ssl.TLSVersion.TLSv1_2
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def reload(self) -> None:
        """Reload the files, or log why that is not possible."""
        with self._lock:
            try:
                _renew(self._config)
                self._seen = self._stamps()
                self._anchors, self._context = self._read()
            except (BadCertificate, OSError) as error:
                log.error("the certificate stays as it was: %s", error)
            else:
                log.info("the certificate was reloaded")

    def _watch(self) -> None:
        while not self._over.wait(CHECK_PERIOD):
            if authority.due(Path(self._config.cert).parent) or self._stamps() != self._seen:
                self.reload()

    def _stamps(self) -> list[tuple[int, int]]:
        stamps = []
        for path in (*self.files, self._config.ca):
            if path is not None:
                try:
                    facts = os.stat(path)
                except OSError:
                    continue
                stamps.append((facts.st_ino, facts.st_mtime_ns))
        return stamps

    def _read(self) -> tuple[str, ssl.SSLContext]:
        """Check all files; return the anchors, and a context with certificate and key."""
        certificate = read_certificate(self._config.cert)
        context = load(self._config)
        left = certificate.ends - dt.datetime.now(dt.UTC)
        if left < SOON:
            log.warning("security.tls.cert: the certificate is good for %d more days", max(left.days, 0))
        if self._config.ca is not None:
            read_certificate(self._config.ca, "ca")
            return Path(self._config.ca).read_text(), context
        return "".join(_pem(root) for root in certificate.roots), context


def load(config: Tls) -> ssl.SSLContext:
    """Return a context with certificate and key. Raises BadCertificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password of its own OpenSSL would ask for one at the terminal.
        context.load_cert_chain(config.cert, config.key, password=lambda: "")
    except ssl.SSLError as error:
        raise BadCertificate(
            f"security.tls: {config.cert} and {config.key} do not match ({error.reason or error}). The key must "
            "be that of the first certificate, in PEM, without a password."
        ) from None
    except OSError as error:
        raise BadCertificate(f"security.tls.key: {config.key} cannot be read: {error.strerror}.") from None
    return context


def read_certificate(path: str, key: str = "cert") -> Certificate:
    """Read a certificate file. Raises BadCertificate for a file without a currently valid certificate."""
    try:
        chain = x509.load_pem_x509_certificates(Path(path).read_bytes())
    except OSError as error:
        raise BadCertificate(f"security.tls.{key}: {path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise BadCertificate(f"security.tls.{key}: {path} holds no certificate in PEM.") from None
    certificate = Certificate(chain)
    now = dt.datetime.now(dt.UTC)
    if not chain[0].not_valid_before_utc <= now < certificate.ends:
        since, until = chain[0].not_valid_before_utc, certificate.ends
        raise BadCertificate(
            f"security.tls.{key}: {path} is good from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC, which is "
            "not now. Replace it, or correct the clock."
        )
    return certificate


def _renew(config: Tls) -> None:
    """Renew a certificate that `trainmaster tls init` made, before it expires."""
    folder = Path(config.cert).parent
    if authority.due(folder):
        authority.renew(folder)
        log.info("the certificate in %s was renewed", folder)


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()
