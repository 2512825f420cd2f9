"""A small certificate authority for sites without one: `trainmaster tls init`.

It keeps in a folder of its own, mode 0700: `ca.crt` (which clients and jobs trust, 10 years) and `ca.key`, `master.crt`
(the master's certificate, 397 days, the most that browsers accept, followed by the authority's) and `master.key`. The
master renews its own certificate a month before it expires; clients that trust `ca.crt` need no change.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainmaster.files import replace_file

LIFE_OF_AUTHORITY = dt.timedelta(days=3652)
LIFE = dt.timedelta(days=397)  # CA/Browser Forum, Baseline Requirements 6.3.2
RENEWED = dt.timedelta(days=30)  # before the end
BACKDATED = dt.timedelta(hours=1)  # clocks of nodes differ
CA, CA_KEY, CERT, KEY = "ca.crt", "ca.key", "master.crt", "master.key"


class AuthorityExists(RuntimeError):
    """The folder holds an authority already."""


def usual_names() -> list[str]:
    """Return this machine's names and addresses, loopback included."""
    names = [socket.getfqdn(), socket.gethostname(), "localhost", "127.0.0.1", "::1"]
    return list(dict.fromkeys(name for name in names if name))


def init(folder: Path, names: Sequence[str]) -> None:
    """Create the authority and the master's certificate for `names` (hosts and addresses).

    Raises AuthorityExists, ValueError for an invalid host name, OSError."""
    subject_names = [_general_name(name) for name in names]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / CA).exists() or (folder / CERT).exists():
        raise AuthorityExists(f"There are certificates in {folder} already.")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"trainmaster authority of {socket.gethostname()}"[:64])])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFE_OF_AUTHORITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    replace_file(folder / CA_KEY, _private(key), 0o600)
    replace_file(folder / CA, made.public_bytes(Encoding.PEM), 0o644)
    _issue(folder, x509.SubjectAlternativeName(subject_names))


def due(folder: Path) -> bool:
    """Whether the master's certificate was made here and expires soon."""
    if not (folder / CA_KEY).exists():
        return False
    try:
        (ours, *_) = x509.load_pem_x509_certificates((folder / CERT).read_bytes())
    except (OSError, ValueError):
        return False
    return ours.not_valid_after_utc - dt.datetime.now(dt.UTC) < RENEWED


def renew(folder: Path) -> None:
    """Renew the master's certificate, for the same names and with a new key. Raises OSError."""
    (old, *_) = x509.load_pem_x509_certificates((folder / CERT).read_bytes())
    _issue(folder, old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def _issue(folder: Path, names: x509.SubjectAlternativeName) -> None:
    (authority,) = x509.load_pem_x509_certificates((folder / CA).read_bytes())
    signer = load_pem_private_key((folder / CA_KEY).read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)  # as `init` made it
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    common = next((name.value for name in names if isinstance(name, x509.DNSName)), "trainmaster")[:64]
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(min(now + LIFE, authority.not_valid_after_utc))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
        .sign(signer, hashes.SHA256())
    )
    # The key first: a reader in between finds two files that do not match, and reads again.
    replace_file(folder / KEY, _private(key), 0o600)
    replace_file(folder / CERT, made.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM), 0o644)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not name or any(not (letter.isalnum() or letter in "-.*_") for letter in name) or not name.isascii():
        raise ValueError(f"{name!r} cannot be the name of a host.")
    return x509.DNSName(name)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
