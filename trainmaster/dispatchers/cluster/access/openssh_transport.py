"""Transport over the system's OpenSSH: uses its key agents, its configuration, and connections that a person
opened.

plumbum's local machine runs `ssh`. Its `SshMachine` is not used: it opens a login shell of its own first, which a noisy
profile confuses, and which takes one of the few sessions that a connection has.
"""

from __future__ import annotations

import getpass
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import plumbum
from plumbum.commands.base import shquote
from plumbum.commands.processes import CommandNotFound, ProcessTimedOut

from trainmaster.dispatchers.cluster.access.config import SshOptions, parse_jump
from trainmaster.dispatchers.cluster.access.transport import Channel, ProcessChannel, ProgramNotStarted

ALIVE_EVERY = 15  # seconds between keepalives to a silent server; two without an answer end the connection
KEPT = 600  # seconds for which a connection of ours outlives its last command


class OpenSshTransport:
    """One account on one host. The first command opens a connection that the next ones share."""

    def __init__(self, options: SshOptions, user: str | None) -> None:
        self.place = f" on {options.host}"
        self._options = options
        self._user = user or options.user or getpass.getuser()
        self._sessions = threading.BoundedSemaphore(options.sessions)
        # A socket's path may have 107 bytes, and ssh adds 17 of its own while it makes one.
        self._folder = None if options.control_path else Path(tempfile.mkdtemp(prefix="tm-ssh-"))

    @property
    def _socket(self) -> str:
        return self._options.control_path or f"{self._folder}/s"

    def start(self, argv: Sequence[str], until: float) -> Channel:
        program = shutil.which("ssh")
        if program is None:
            raise ProgramNotStarted("The system has no ssh; install OpenSSH's client, or set ssh.client to paramiko.")
        command = " ".join(map(shquote, argv))
        return _SharedChannel(self._sessions, [program, *self._words(), "--", self._options.host, command], until)

    def _words(self) -> list[str]:
        options = self._options
        settings = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "UpdateHostKeys": "no",
            "ConnectTimeout": str(max(1, round(options.connect_timeout))),
            "ServerAliveInterval": str(ALIVE_EVERY),
            "ServerAliveCountMax": "2",
            "ControlPath": self._socket.replace("%", "%%") if self._folder else self._socket,
            # A connection that a person opened is never replaced: with a second factor we could not open one.
            "ControlMaster": "no" if options.control_path else "auto",
            "ControlPersist": str(KEPT),
            "ForwardAgent": "no",
            "ForwardX11": "no",
            "ClearAllForwardings": "yes",
            "PermitLocalCommand": "no",
            "RequestTTY": "no",
            "EscapeChar": "none",
        }
        if options.known_hosts:
            settings["UserKnownHostsFile"] = _quoted(options.known_hosts)
        if options.identity_file:
            settings["IdentityFile"] = _quoted(options.identity_file.replace("{user}", self._user))
            settings["IdentitiesOnly"] = "yes"
        words = ["-T", "-p", str(options.port), "-l", self._user]
        if options.jump_host:
            # ssh starts a second ssh for the jump host, which gets these settings only if they are given in full.
            settings["ProxyCommand"] = self._through(settings)
        return [*words, *(f"-o{name}={value}" for name, value in settings.items())]

    def _through(self, settings: dict[str, str]) -> str:
        user, host, port = parse_jump(self._options.jump_host or "")
        same = ("BatchMode", "StrictHostKeyChecking", "ConnectTimeout", "UserKnownHostsFile", "IdentityFile")
        flags = [f"-o{name}={settings[name]}" for name in (*same, "IdentitiesOnly") if name in settings]
        words = ["ssh", "-T", "-p", str(port), "-l", user or self._user, *flags, "-W", "[%h]:%p", "--", host]
        return " ".join(word if word == "[%h]:%p" else shquote(word).replace("%", "%%") for word in words)

    def invalidate(self) -> None:
        """Close our own shared connection. A person's stays open: ssh itself checks whether the server is alive."""
        if self._folder:
            self._leave()

    def close(self) -> None:
        if self._folder:
            self._leave()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _leave(self) -> None:
        if not self._folder or not os.path.exists(self._socket):
            return
        with suppress(ProcessTimedOut, CommandNotFound, OSError):
            leave = plumbum.local["ssh"]["-oControlPath=" + self._socket.replace("%", "%%"), "-Oexit", "none"]
            leave.run(retcode=None, timeout=5)
        with suppress(OSError):
            os.unlink(self._socket)


class _SharedChannel(ProcessChannel):
    """An `ssh` that holds one of the connection's sessions."""

    def __init__(self, sessions: threading.BoundedSemaphore, argv: Sequence[str], until: float) -> None:
        if not sessions.acquire(timeout=max(0.0, until - time.monotonic())):
            raise ProgramNotStarted(
                "All sessions of the SSH connection are busy; raise ssh.sessions or sshd's MaxSessions."
            )
        self._sessions = sessions
        names = ("HOME", "USER", "LOGNAME", "PATH", "SSH_AUTH_SOCK", "KRB5CCNAME", "LANG")
        try:
            super().__init__(argv, {name: os.environ[name] for name in names if name in os.environ})
        except BaseException:
            sessions.release()
            raise

    def close(self) -> str:
        try:
            return super().close()
        finally:
            self._sessions.release()


def _quoted(path: str) -> str:
    """Quote a path for an ssh option, whose values are split at blanks and expand %."""
    return '"' + path.replace("%", "%%") + '"'


def explain(complaint: str, options: SshOptions, user: str | None) -> str | None:
    """Return a sentence for ssh's error message, with how to fix it; None when the message is not ssh's."""
    where = f"{options.host}:{options.port}"
    known = options.known_hosts or "~/.ssh/known_hosts"
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in complaint:
        return host_key_changed(where, known)
    if "Host key verification failed" in complaint or "host key is known for" in complaint:
        return host_key_unknown(options, known)
    if "Permission denied" in complaint or "Too many authentication failures" in complaint:
        return login_refused(where, user or options.user or getpass.getuser(), options)
    if options.jump_host and "UNKNOWN port" in complaint:
        # The error of the ssh to the jump host is lost: with ControlPersist its standard error goes nowhere.
        return (
            f"SSH to {where} does not get through {options.jump_host}: its host key must be in {known}, and it must "
            f"let {user or options.user or getpass.getuser()} in with the same key."
        )
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ssh: ", "kex_", "Connection ", "mux_", "Control socket"))]
    return f"SSH to {where} failed: {errors[-1]}." if errors else None


def host_key_changed(where: str, known: str) -> str:
    return (
        f"The host key of {where} is not the one in {known}: the connection may be intercepted, or the machine was "
        f"reinstalled. Ask its administrators for the fingerprint, and only then replace the line in {known}."
    )


def host_key_unknown(options: SshOptions, known: str) -> str:
    return (
        f"The host key of {options.host}:{options.port} is not in {known}. Run `ssh-keyscan -p {options.port} "
        f"{options.host}`, compare the fingerprint with the one that the site publishes, and add the line to {known}."
    )


def login_refused(where: str, user: str, options: SshOptions) -> str:
    if options.control_path:
        return (
            f"There is no open connection at {options.control_path}, and {where} wants more than a key from {user}. "
            f"Open one: ssh -M -S {options.control_path} -fN -p {options.port} {user}@{options.host}"
        )
    key = (options.identity_file or "any key of the agent or ~/.ssh").replace("{user}", user)
    return f"{where} does not let {user} in with {key}: put its public half into {user}'s authorized_keys there."
