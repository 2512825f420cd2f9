"""Transport over paramiko, for machines without an ssh client: one connection per account, one channel per
command.

plumbum's `ParamikoMachine` is not used: it cannot name a file of known hosts, opens a login shell of its own, and can
neither put a deadline on a command nor end one.
"""

from __future__ import annotations

import getpass
import logging
import os
import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import paramiko

from trainmaster.dispatchers.cluster.access.config import SshOptions, parse_jump
from trainmaster.dispatchers.cluster.access.openssh_transport import host_key_changed, host_key_unknown, login_refused
from trainmaster.dispatchers.cluster.access.transport import CHUNK, COMPLAINT, Channel, ProgramNotStarted

BUSY = 0.05  # seconds between two tries to open a session when all are taken
KEEPALIVE = 15  # seconds between keepalives on an idle connection
# The administrator gets its messages about lost connections as our sentences.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class ParamikoTransport:
    """One account on one host. The first command opens the connection; it is opened again after it broke."""

    def __init__(self, options: SshOptions, user: str | None) -> None:
        self.place = f" on {options.host}"
        self._options = options
        self._user = user or options.user or getpass.getuser()
        self._sessions = threading.BoundedSemaphore(options.sessions)
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._clients: list[paramiko.SSHClient] = []  # the jump host's, if any, and last the host's own
        self._failed: tuple[float, str] | None = None

    def start(self, argv: Sequence[str], until: float) -> Channel:
        if not self._sessions.acquire(timeout=max(0.0, until - time.monotonic())):
            raise ProgramNotStarted(
                "All sessions of the SSH connection are busy; raise ssh.sessions or sshd's MaxSessions."
            )
        try:
            return _ParamikoChannel(self._channel(shlex.join(argv), until), self._sessions)
        except BaseException:
            self._sessions.release()
            raise

    def _channel(self, command: str, until: float) -> paramiko.Channel:
        """Open a channel in which `command` runs. A connection that turns out to be dead is reopened, once; one that
        works is kept whatever happens to a channel, because other commands run on it."""
        dead = False
        while True:
            transport = self._connected(until)
            try:
                return self._open(transport, command, until)
            except (paramiko.SSHException, OSError, EOFError) as error:
                late = time.monotonic() >= until
                if late or not transport.is_active():
                    self._drop(transport)
                if late or (dead and not transport.is_active()):
                    raise ProgramNotStarted(f"{self._where} accepts no command: {_text(error)}.") from None
                dead = dead or not transport.is_active()
            # The server still counts sessions that have just ended here.
            time.sleep(BUSY)

    def _open(self, transport: paramiko.Transport, command: str, until: float) -> paramiko.Channel:
        # One at a time: paramiko gives its last error to the first thread that asks.
        if not self._opening.acquire(timeout=max(0.0, until - time.monotonic())):
            raise TimeoutError
        try:
            channel = transport.open_session(timeout=max(0.1, until - time.monotonic()))
        finally:
            self._opening.release()
        channel.settimeout(max(0.1, until - time.monotonic()))
        channel.exec_command(command)
        return channel

    @property
    def _where(self) -> str:
        return f"{self._options.host}:{self._options.port}"

    def _connected(self, until: float) -> paramiko.Transport:
        asked = time.monotonic()
        if not self._lock.acquire(timeout=max(0.0, until - time.monotonic())):
            raise ProgramNotStarted(f"{self._where} does not answer.")
        try:
            transport = self._clients[-1].get_transport() if self._clients else None
            if transport is not None and transport.is_active():
                return transport
            self._disconnect()
            if self._failed and self._failed[0] > asked:
                raise ProgramNotStarted(self._failed[1])  # the attempt that others waited for
            try:
                made = self._connect(until)
            except ProgramNotStarted as error:
                self._failed = time.monotonic(), str(error)
                self._disconnect()
                raise
            self._failed = None
            return made
        finally:
            self._lock.release()

    def _connect(self, until: float) -> paramiko.Transport:
        options, sock = self._options, None
        if options.jump_host:
            user, host, port = parse_jump(options.jump_host)
            through = self._log_in(host, port, user or self._user, until, None)
            try:
                sock = through.open_channel(
                    "direct-tcpip", (options.host, options.port), ("", 0), timeout=self._left(until)
                )
            except (paramiko.SSHException, OSError) as error:
                raise ProgramNotStarted(f"{host} does not lead to {self._where}: {_text(error)}.") from None
        return self._log_in(options.host, options.port, self._user, until, sock)

    def _log_in(
        self, host: str, port: int, user: str, until: float, sock: paramiko.Channel | None
    ) -> paramiko.Transport:
        options = self._options
        known = os.path.expanduser(options.known_hosts or "~/.ssh/known_hosts")
        where, left = f"{host}:{port}", self._left(until)
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        self._clients.append(client)
        key = os.path.expanduser(options.identity_file.replace("{user}", self._user)) if options.identity_file else None
        try:
            client.load_host_keys(known)
            client.connect(
                host, port, user, key_filename=key, sock=sock, timeout=left, banner_timeout=left, auth_timeout=left,
                channel_timeout=left, allow_agent=key is None, look_for_keys=key is None,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise ProgramNotStarted(f"SSH to {where}: {error.filename} does not exist.") from None
        except paramiko.BadHostKeyException:
            raise ProgramNotStarted(host_key_changed(where, known)) from None
        except (paramiko.AuthenticationException, paramiko.PasswordRequiredException):
            raise ProgramNotStarted(login_refused(where, user, options)) from None
        except (paramiko.SSHException, OSError, EOFError, ValueError) as error:
            if "not found in known_hosts" in str(error):
                raise ProgramNotStarted(host_key_unknown(options, known)) from None
            raise ProgramNotStarted(f"SSH to {where} failed: {_text(error)}.") from None
        transport = client.get_transport()
        assert transport is not None
        transport.set_keepalive(KEEPALIVE)
        return transport

    def _left(self, until: float) -> float:
        return max(0.1, min(until - time.monotonic(), self._options.connect_timeout))

    def _drop(self, transport: paramiko.Transport) -> None:
        """Close a connection, unless another thread has opened a new one meanwhile."""
        with self._lock:
            if self._clients and self._clients[-1].get_transport() in (transport, None):
                self._disconnect()

    def _disconnect(self) -> None:
        for client in reversed(self._clients):
            with suppress(OSError, EOFError, paramiko.SSHException):  # its last messages are dropped
                client.close()
        self._clients.clear()

    def invalidate(self) -> None:
        with self._lock:
            self._disconnect()

    def close(self) -> None:
        self.invalidate()


class _ParamikoChannel:
    def __init__(self, channel: paramiko.Channel, sessions: threading.BoundedSemaphore) -> None:
        self._channel = channel
        self._sessions = sessions

    def send(self, data: bytes, until: float) -> None:
        view = memoryview(data)
        while view:
            with self._limit(until):
                view = view[self._channel.send(view[:CHUNK]) :]

    def receive(self, until: float) -> bytes:
        with self._limit(until):
            data: bytes = self._channel.recv(CHUNK)
        return data

    @contextmanager
    def _limit(self, until: float) -> Iterator[None]:
        """Set a deadline, and turn a closed connection into the usual OSError."""
        self._channel.settimeout(max(0.001, until - time.monotonic()))
        try:
            yield
        except (EOFError, paramiko.SSHException) as error:
            raise ConnectionError(_text(error)) from None

    def close(self) -> str:
        complaint = b""
        try:
            with suppress(OSError, paramiko.SSHException, EOFError):
                while self._channel.recv_stderr_ready() and len(complaint) < COMPLAINT:
                    complaint += self._channel.recv_stderr(CHUNK)
        finally:
            self._channel.close()
            self._sessions.release()
        return complaint.decode(errors="replace")


def _text(error: BaseException) -> str:
    # paramiko reports "No existing session" when a server accepts the connection and then never answers.
    if "No existing session" in str(error) or isinstance(error, TimeoutError):
        return "no answer in time"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
