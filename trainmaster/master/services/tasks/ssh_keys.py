"""SSH keys of a shell: one that admits its user, and one that identifies its server."""

from __future__ import annotations

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from trainmaster.master.values.tasks import ShellKeys


def make() -> ShellKeys:
    """Create the keys of a user and of a server."""
    user, host = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    return ShellKeys(
        {
            "private_key": _private(user),
            "public_key": _public(user),
            "host_key": _private(host),
            "host_public_key": _public(host),
            "authorized_keys": f"{_public(user)}\n",
        }
    )


def _private(key: Ed25519PrivateKey) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


def _public(key: Ed25519PrivateKey) -> str:
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return key.public_key().public_bytes(encoding, form).decode()
