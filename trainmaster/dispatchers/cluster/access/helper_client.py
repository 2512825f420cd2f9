"""Client of the helper program: sends one request and reads its answer, over any transport.

The request is sent only after the program has printed its greeting. So a failure before that has certainly done
nothing, whatever the error message, and a failure afterwards may have had its full effect.
"""

from __future__ import annotations

import importlib.resources
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainmaster.dispatchers.cluster import jobfolder
from trainmaster.dispatchers.cluster.access.transport import (
    Channel,
    ConnectionLost,
    ProgramNotStarted,
    ProgramTransport,
)
from trainmaster.dispatchers.cluster.jobfolder import helper

START = 30.0  # seconds within which the program must print its greeting
MARGIN = 10.0  # seconds after a command's deadline within which the answer must arrive
GREETING = re.compile(rb"trainmaster-helper (\d{1,6}) ready\r?\n")
MAX_ANSWER = 320 * 1024**2  # bytes: helper.MAX_OUTPUT in its encoded form; more than any other answer
MAX_NOISE = 1024 * 1024  # bytes that a login may print before the greeting
# The source follows on standard input: a command line shows in `ps`, and has to pass an unknown login shell.
BOOTSTRAP = "import sys;f=sys.stdin.buffer;exec(compile(f.read(int(f.readline())),sys.argv[0],sys.argv[1]))"


class RefusedByHelper(Exception):
    """The helper refuses the request for good."""


class FailedInHelper(Exception):
    """The helper could not carry out the request this time."""


class HelperClient:
    """Runs the helper program as one account, once per request."""

    def __init__(
        self,
        line: ProgramTransport,
        argv: Sequence[str],
        *,
        source: bytes = b"",
        user: str | None = None,
        explain: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """
        Args:
            argv: the command that starts it.
            source: sent to it first, where it is not installed.
            user: the account that it must run as.
            explain: turns an error message of sudo or ssh into a sentence.
        """
        self._line, self._argv, self._user, self._explain = line, argv, user, explain
        self._preface = b"%d\n%s" % (len(source), source) if source else b""

    def ask(self, verb: str, deadline: float, **fields: Any) -> Mapping[str, Any]:
        """Return the helper's answer within `deadline` seconds. Raises RefusedByHelper, FailedInHelper,
        ProgramNotStarted, ConnectionLost."""
        mark = secrets.token_hex(16)
        request = {"mark": mark, "verb": verb, "deadline": deadline, "user": self._user, **fields}
        started = time.monotonic() + START
        wire = self._line.start(self._argv, started)
        complaint = None
        try:
            self._greet(wire, started)
            text = self._exchange(wire, json.dumps(request).encode() + b"\n", mark.encode(), deadline)
        except _Ended as ended:
            complaint = wire.close()
            raise self._failure(ended, complaint) from None
        except TimeoutError:
            self._line.invalidate()
            raise ProgramNotStarted(f"The helper{self._line.place} does not answer within {START:.0f} s.") from None
        finally:
            if complaint is None:
                wire.close()
        try:
            reply = json.loads(text)
        except ValueError:
            raise ConnectionLost(f"The helper{self._line.place} printed an answer that is not JSON.") from None
        if "ok" in reply:
            return dict(reply["ok"])
        if "refused" in reply:
            raise RefusedByHelper(str(reply["refused"]))
        raise FailedInHelper(str(reply.get("failed")))

    def _greet(self, wire: Channel, until: float) -> None:
        """Wait for the greeting of the program. Raises _Ended, TimeoutError, ProgramNotStarted."""
        received = b""
        try:
            wire.send(self._preface, until)
            while not (match := GREETING.search(received)):
                more = wire.receive(until)
                if not more or len(received) > MAX_NOISE:
                    raise _Ended(ProgramNotStarted)
                received += more
        except TimeoutError:
            raise
        except OSError:
            raise _Ended(ProgramNotStarted) from None
        version = int(match[1])
        if version != helper.VERSION:
            raise ProgramNotStarted(
                f"The helper{self._line.place} is of version {version}, and this master speaks version "
                f"{helper.VERSION}: install the one that `trainmaster helper show` prints."
            )

    def _exchange(self, wire: Channel, request: bytes, mark: bytes, deadline: float) -> bytes:
        """Send the request and return the answer between the marks. Raises _Ended, ConnectionLost."""
        until = time.monotonic() + deadline + MARGIN
        received = bytearray()
        begin = -1
        try:
            wire.send(request, until)
            while True:
                more = wire.receive(until)
                if not more:
                    raise _Ended(ConnectionLost)
                if len(received) > MAX_ANSWER:
                    raise ConnectionLost(f"The answer{self._line.place} is longer than {MAX_ANSWER >> 20} MiB.")
                look = max(0, len(received) - len(mark))
                received += more
                if begin < 0 and (begin := received.find(mark, look)) >= 0:
                    look = begin + len(mark)
                if begin >= 0 and (end := received.find(mark, max(look, begin + len(mark)))) >= 0:
                    return bytes(received[begin + len(mark) : end])
        except TimeoutError:
            self._line.invalidate()
            raise ConnectionLost(f"No answer{self._line.place} in {deadline + MARGIN:.0f} s.") from None
        except OSError as error:
            raise ConnectionLost(f"The connection{self._line.place} was lost: {error}.") from None

    def _failure(self, ended: _Ended, complaint: str) -> ProgramNotStarted | ConnectionLost:
        explained = self._explain(complaint)
        last = next((line.strip() for line in reversed(complaint.splitlines()) if line.strip()), "no message")
        if ended.kind is ConnectionLost:
            return ConnectionLost(
                f"The connection{self._line.place} was lost before the answer came ({last.rstrip('.')})."
            )
        return ProgramNotStarted(explained or f"The helper cannot be started{self._line.place}: {last.rstrip('.')}.")


class _Ended(Exception):
    """The program closed its output; `kind` is the error that this means."""

    def __init__(self, kind: type[ProgramNotStarted] | type[ConnectionLost]) -> None:
        self.kind = kind


def own_source() -> bytes:
    """Return the helper as one file: helper.py, with the first import of each module of its folder replaced by that
    module."""
    folder = importlib.resources.files(jobfolder)
    placed: set[str] = set()

    def module(match: re.Match[str]) -> str:
        if match[1] in placed:
            return ""
        placed.add(match[1])
        text = folder.joinpath(f"{match[1]}.py").read_text(encoding="utf-8")
        body = text.partition("from __future__ import annotations\n")[2]
        return f"# -- {jobfolder.__name__}.{match[1]} --" + re.sub(imports, module, body, flags=re.MULTILINE)

    imports = rf"^from {re.escape(jobfolder.__name__)}\.(\w+) import (?:\([^)]*\)|.*)$"
    program = folder.joinpath("helper.py").read_text(encoding="utf-8")
    return re.sub(imports, module, program, flags=re.MULTILINE).encode()


def bootstrap(python: str) -> list[str]:
    """Return the command that runs a helper whose source comes over standard input."""
    return [python, "-I", "-c", BOOTSTRAP, "exec"]
