"""What can go wrong before and around the user's process.

RuntimeFault            the job cannot go on; carries the status to leave with
|-- BadJobFolder        the job folder or the scheduler's environment is not what it should be (78)
|-- NotLeased           the master did not give us the work (75)
|   |-- HeldElsewhere   another job has this allocation, or it has ended: leave without a trace (0)
|   |-- NotAdmitted     the session token was refused (77)
|   `-- NoLease         no lease, or no files of the user, for the whole lease patience (75)
|-- NoData              the data that is to be on the node cannot be had there (70)
|-- BadContext          the user's files cannot be unpacked safely (70)
|-- NoRendezvous        the other nodes did not come (75)
|-- PortTaken           another account listens on a port that this job reserved (75)
|-- MissingDevices      the node has not what its scheduler gave the job (69)
`-- AskedToLeave        a signal or the master asked the job to leave before the user's process began
MasterError             one call to the master had no good answer
|-- CallFailed          the same call may work later
|   |-- ConnectionRefused   no process listens on the port: most likely the master restarts
|   `-- MasterUnreachable   no route, no name, no answer in time, or a 5xx/408/429 from what did answer
`-- CallRejected        the master refused (other 4xx)
"""

from __future__ import annotations

from typing import Optional


class RuntimeFault(Exception):
    """The job cannot go on. `status` is the exit status of the runtime (from sysexits.h where one fits)."""

    status = 70


class BadJobFolder(RuntimeFault):
    status = 78


class NotLeased(RuntimeFault):
    status = 75


class HeldElsewhere(NotLeased):
    status = 0


class NotAdmitted(NotLeased):
    status = 77


class NoLease(NotLeased):
    status = 75


class NoData(RuntimeFault):
    status = 70


class BadContext(RuntimeFault):
    status = 70


class NoRendezvous(RuntimeFault):
    status = 75


class PortTaken(RuntimeFault):
    status = 75


class MissingDevices(RuntimeFault):
    status = 69


class AskedToLeave(RuntimeFault):
    """The job was asked to leave before the user's process began; `reason` as in the exit record."""

    def __init__(self, reason: str, signum: Optional[int] = None) -> None:
        super().__init__("asked to leave (%s) before anything was started" % reason)
        self.reason = reason
        self.signum = signum


class MasterError(Exception):
    """One call to the master had no good answer."""


class CallFailed(MasterError):
    """The master cannot be asked now; the same call may work later. `retry_after`: in how many seconds, if it said."""

    def __init__(self, message: str, retry_after: Optional[float] = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ConnectionRefused(CallFailed):
    """Connection refused: the machine is up and no process listens on the port."""


class MasterUnreachable(CallFailed):
    """No route, no name, no answer in time, or an answer that says "not now"."""


class CallRejected(MasterError):
    """The master refused. `http_status` is its code."""

    def __init__(self, http_status: int, message: str) -> None:
        super().__init__("the master answered %d: %s" % (http_status, message))
        self.http_status = http_status
