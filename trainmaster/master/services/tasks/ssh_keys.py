"""SSH keys of a shell: one that admits its user, and one that identifies its server."""

from __future__ import annotations

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def make() -> dict[str, str]:
    """Create keys in OpenSSH's format: `private_key` and `public_key` of the user, `host_key` and `host_public_key` of
    the server, and `authorized_keys`."""
    user, host = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    return {
        "private_key": _private(user),
        "public_key": _public(user),
        "host_key": _private(host),
        "host_public_key": _public(host),
        "authorized_keys": f"{_public(user)}\n",
    }


def _private(key: Ed25519PrivateKey) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


def _public(key: Ed25519PrivateKey) -> str:
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return key.public_key().public_bytes(encoding, form).decode()
