"""Shared by the services in jobs (notebooks, shells, TensorBoards): chooses a port, reports it to the master, and
waits for the end."""

from __future__ import annotations

import hashlib
import hmac
import os
import pwd
import socket
import subprocess
import sys
from pathlib import Path
from typing import Callable, Mapping, Optional, Sequence

from trainmaster.core.info import ClusterInfo, get_cluster_info
from trainmaster.runtime.announce import address_for, announce
from trainmaster.runtime.errors import CallFailed, CallRejected
from trainmaster.runtime.master import MasterCalls

_PATIENCE = 600.0  # seconds that a master that is away is waited for
_PORTS = 5  # ports that are tried: between the choice and the use of one, another process may take it
_LOOK = 0.1  # seconds between two looks whether the service answers


class Service:
    """The service of this job. Raises SystemExit outside of one."""

    def __init__(self) -> None:
        info = get_cluster_info()
        if info is None or info.runtime_info is None:
            raise SystemExit("this program is started by trainmaster in its jobs")
        runtime = info.runtime_info
        self.info: ClusterInfo = info
        self.run_dir: Path = runtime.run_dir
        self.job_folder: Path = runtime.spool.parent
        self.address = address_for(info.master_url, info.container_addrs[0])
        self.port = free_port(self.address)
        self.master = MasterCalls(
            info.master_url, info.session_token, url_file=runtime.master_url_file, url_owner=runtime.master_url_owner
        )

    @property
    def prefix(self) -> str:
        """The path under which users reach the service."""
        return "/proxy/%s/" % self.info.task_id

    @property
    def secret(self) -> str:
        """Authenticates the master to the service; the master derives the same from the job's token."""
        return hmac.new(self.info.session_token.encode("ascii"), b"service", hashlib.sha256).hexdigest()

    def run(
        self,
        command: Callable[[], Sequence[str]],
        environment: Optional[Mapping[str, str]] = None,
        meanwhile: Optional[Callable[[], None]] = None,
        every: float = 30.0,
        prepare: Optional[Callable[[], None]] = None,
    ) -> int:
        """Start `command`, which is called again for another port when another process has taken this one; report
        the service to the master when it answers, and wait for its end. `meanwhile` is called every `every` seconds
        once it answers, `prepare` in the child before exec. Returns the status to leave with."""
        for left in range(_PORTS - 1, -1, -1):
            child = start(command(), os.environ if environment is None else environment, prepare)
            if child is None:
                return 127
            status = self._until_it_answers(child)
            if status is None:
                self._announce()
                return attend(child, meanwhile, every)
            if not left or is_free(self.address, self.port):
                return status
            self.port = free_port(self.address)
        raise AssertionError("the last turn returns")

    def _until_it_answers(self, child: subprocess.Popen[bytes]) -> Optional[int]:
        """Wait until the service answers; its status when it ends before."""
        while not answers(self.address, self.port):
            if (status := wait(child, _LOOK)) is not None:
                return status
        return wait(child, _LOOK)  # another process may have answered

    def _announce(self) -> None:
        """Report to the master where the service is and that it answers. A refusal ends the job: users could not
        reach it."""
        number = self.info.allocation_id
        try:
            announce(self.master, number, self.address, _PATIENCE, self.port, account())
            self.master.call_with_retry("POST", "/api/v1/allocations/%s/ready" % number, {}, patience=_PATIENCE)
        except (CallFailed, CallRejected) as error:
            raise SystemExit("the address of this service could not be reported to the master: %s" % error) from None

    def report(self, method: str, path: str, body: Mapping[str, object]) -> None:
        """Make a call to the master whose loss does no harm."""
        try:
            self.master.call(method, path, dict(body))
        except (CallFailed, CallRejected) as error:
            print("a report to the master failed: %s" % error, file=sys.stderr, flush=True)


def start(
    command: Sequence[str], environment: Mapping[str, str], prepare: Optional[Callable[[], None]] = None
) -> Optional[subprocess.Popen[bytes]]:
    """Start the program; None, with a message, when it cannot be run."""
    try:
        return subprocess.Popen(list(command), env=dict(environment), preexec_fn=prepare)
    except OSError as error:
        print("%s cannot be run: %s" % (command[0], error.strerror or error), file=sys.stderr, flush=True)
        return None


def attend(child: subprocess.Popen[bytes], meanwhile: Optional[Callable[[], None]], every: float) -> int:
    """Wait for the child's end, and call `meanwhile` every `every` seconds."""
    while True:
        status = wait(child, every)
        if status is not None:
            return status
        if meanwhile is not None:
            meanwhile()


def is_free(address: str, port: int) -> bool:
    """Whether no process uses the port now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ports that were just let go of are free
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def free_port(address: str) -> int:
    """Find a TCP port that no process uses at present."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def answers(address: str, port: int) -> bool:
    """Whether connections are accepted there."""
    try:
        with socket.create_connection((address, port), timeout=2.0):
            return True
    except OSError:
        return False


def wait(child: subprocess.Popen[bytes], seconds: float) -> Optional[int]:
    """Wait for the child; its status, as a shell has it, if it ends within `seconds`."""
    try:
        status = child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    return 128 - status if status < 0 else status


def account() -> str:
    """Name of the account that this job runs as; its number where it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
