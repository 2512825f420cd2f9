"""Authenticates agents: each gets a secret of its own once, in exchange for the enrolment key.

The key is in a file that the administrator copies to new hosts. An agent shows it once and gets a secret in exchange,
which it keeps and shows from then on; of the secrets only hashes are stored here. A name is enrolled once, so
that the key does not let one host impersonate another. Revoking an agent invalidates its secret and, if the master made
the key, creates a new key, because the old one may have been on the same host.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import threading
from pathlib import Path

from trainmaster.dispatchers.base import Rejected, Transient
from trainmaster.dispatchers.contract.agents import AlreadyEnrolled, WrongKey
from trainmaster.dispatchers.docker.job_record import write_whole

log = logging.getLogger(__name__)

KEY_FILE = "agent-token"
FILE = ".agent-secrets.json"
SHORTEST_KEY = 16  # characters


class Enrolment:
    """The secrets of one cluster's agents. Thread-safe; several masters may read them, only the leader changes them."""

    def __init__(self, root: Path, key_file: str | None) -> None:
        """`key_file`: one that the administrator provides; None creates one in `root`. Raises Rejected."""
        self._path = root / FILE
        self._named = key_file
        self.key_file = Path(key_file or root / KEY_FILE)
        self._lock = threading.Lock()
        self._read_at: tuple[int, int] | None = None
        self._hashes: dict[str, str] = {}
        self._used_up: set[str] = set()
        if self._key() is None:
            if key_file:
                raise Rejected(f"agent_token_file: {self.key_file} does not exist.")
            self._new_key()

    def accepts(self, agent_id: str, secret: str) -> bool:
        """Whether `secret` is that of the agent."""
        with self._lock:
            self._refresh()
            known = self._hashes.get(agent_id, "")
        return hmac.compare_digest(known.encode(), _hash(secret).encode())

    def enrol(self, agent_id: str, key: str) -> str:
        """Return a new secret for a new agent. Raises WrongKey, AlreadyEnrolled, Transient."""
        with self._lock:
            self._refresh()
            known = self._key()
            if known is None or not hmac.compare_digest(known.encode(), key.encode(errors="replace")):
                raise WrongKey(
                    "This is not the enrolment key of agents: that key is in the file agent-token in the master's jobs "
                    "folder, or in the one that agent_token_file names."
                )
            if _hash(key) in self._used_up:
                raise WrongKey(
                    "An agent that knew this key was revoked: an administrator must put another one into the file that "
                    "agent_token_file names."
                )
            if agent_id in self._hashes:
                raise AlreadyEnrolled(
                    f"An agent {agent_id} is enrolled already, and this one does not have its secret. Choose another "
                    "name with --agent-id; or, if this host lost its data folder, have an administrator run `det agent "
                    f"revoke {agent_id}`, and enrol with the new key."
                )
            secret = secrets.token_urlsafe(32)
            self._write({**self._hashes, agent_id: _hash(secret)}, self._used_up)
            log.info("agent %s is enrolled", agent_id)
            return secret

    def revoke(self, agent_id: str) -> None:
        """Invalidate an agent's secret, and the enrolment key. Raises Rejected for one that is not enrolled,
        Transient."""
        with self._lock:
            self._refresh()
            if agent_id not in self._hashes:
                raise Rejected(f"There is no agent {agent_id!r} that is enrolled.")
            left = {name: known for name, known in self._hashes.items() if name != agent_id}
            key = self._key()
            self._write(left, {*self._used_up, *([_hash(key)] if key else [])})
            if not self._named:
                self._new_key()
            log.warning("agent %s was revoked; new agents need the key that is in %s now", agent_id, self.key_file)

    def _key(self) -> str | None:
        try:
            key = self.key_file.read_text().strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Rejected(f"agent_token_file: {self.key_file} cannot be read: {error.strerror}.") from None
        if len(key) < SHORTEST_KEY or not key.isprintable():
            raise Rejected(
                f"agent_token_file: {self.key_file} must hold one line of at least {SHORTEST_KEY} printable characters."
            )
        return key

    def _new_key(self) -> None:
        try:
            write_whole(self.key_file, f"{secrets.token_urlsafe(32)}\n")
        except Transient as error:
            raise Rejected(str(error)) from None

    def _refresh(self) -> None:
        """Read the file again if another master has changed it."""
        try:
            facts = os.stat(self._path)
        except FileNotFoundError:
            self._hashes, self._used_up, self._read_at = {}, set(), None
            return
        if (stamp := (facts.st_ino, facts.st_mtime_ns)) == self._read_at:
            return
        data = json.loads(self._path.read_text())
        self._hashes, self._used_up, self._read_at = dict(data["agents"]), set(data["revoked_keys"]), stamp

    def _write(self, hashes: dict[str, str], used_up: set[str]) -> None:
        write_whole(self._path, json.dumps({"agents": hashes, "revoked_keys": sorted(used_up)}))
        self._refresh()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
