"""Stores the state of each job in `<job folder>/.docker/job.json`, replaced atomically; there is no other copy."""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainmaster.agent_protocol.messages import BindOrder, Blame, Delivery, DeviceOrder
from trainmaster.dispatchers.base import JobState, Transient
from trainmaster.dispatchers.cluster.folder import TOKEN
from trainmaster.files import replace_file

STATE_FOLDER = ".docker"


class Values(BaseModel):
    """Base of stored values. Unknown fields of other releases are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class EndKind(enum.StrEnum):
    """How one node's part of a job ended."""

    EXITED = "exited"
    FAILED = "failed"  # its container could not be started
    GONE = "gone"  # its container was removed from outside
    LOST = "lost"  # its agent was lost


class NodePartEnd(Values):
    kind: EndKind
    at: float
    exit_code: int | None = None
    oom: bool = False
    message: str = ""
    blame: Blame = Blame.NOBODY

    @property
    def bad(self) -> bool:
        return self.kind is not EndKind.EXITED or self.exit_code != 0


class NodePart(Values):
    """One node of a job."""

    agent_id: str
    slot_ids: tuple[int, ...] = ()
    started_at: float | None = None  # when an agent reported that its container runs
    end: NodePartEnd | None = None


class StopKind(enum.StrEnum):
    """Why a job is asked to leave."""

    CANCEL = "cancel"  # the master cancels it
    PREEMPT = "preempt"  # for a job that comes before it
    EVICT = "evict"  # its agent or slot was disabled
    BROKEN = "broken"  # another node of it has failed


class StopRequest(Values):
    kind: StopKind
    at: float
    why: str = ""


class JobEnd(Values):
    state: JobState
    raw: str
    text: str
    at: float
    exit_code: int | None = None
    exit_signal: int | None = None


class JobRequest(Values):
    """What a job asks for."""

    pool: str
    slots: int
    slots_per_node: int | None = None
    single_node: bool = False
    avoid: tuple[str, ...] = ()  # agents on which it must not run
    image: str = ""
    force_pull: bool = False
    binds: tuple[BindOrder, ...] = ()
    shm_size: int | None = None
    network_mode: str = ""
    devices: tuple[DeviceOrder, ...] = ()
    add_capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()
    root_capabilities: tuple[str, ...] = ()
    user: str | None = None
    priority: int = 42
    group: str = ""
    weight: float = 1.0
    max_slots: int | None = None
    preemptible: bool = True
    files: tuple[str, ...] = ()
    shared: dict[str, str] = Field(default_factory=dict)  # those of `files` that other jobs have too: name -> SHA-256


class JobRecord(Values):
    """A job. Times are epoch seconds."""

    token: str
    job_id: str
    submitted_at: float
    order: int  # of submission, ascending
    position: float  # of its group in the queue
    wanted: JobRequest
    ranks: tuple[NodePart, ...] = ()
    stops: tuple[StopRequest, ...] = ()  # at most one of a kind
    signals: tuple[Delivery, ...] = ()  # that the master asked for
    ended: JobEnd | None = None
    adopted: bool = Field(default=False, description="known from an agent only: its own record was lost")

    @property
    def placed(self) -> bool:
        return bool(self.ranks)

    def stop(self, kind: StopKind) -> StopRequest | None:
        return next((stop for stop in self.stops if stop.kind is kind), None)

    def with_part(self, number: int, rank: NodePart) -> JobRecord:
        return self.model_copy(update={"ranks": (*self.ranks[:number], rank, *self.ranks[number + 1 :])})

    def with_stop(self, stop: StopRequest) -> JobRecord:
        """Return the record with the stop request added, unless it has one of that kind."""
        return self if self.stop(stop.kind) else self.model_copy(update={"stops": (*self.stops, stop)})


class Records:
    """The records below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, token: str) -> Path:
        return self._root / token / STATE_FOLDER

    def load(self) -> Iterator[JobRecord]:
        """Yield all readable records. A folder without a record belongs to a job that was never submitted."""
        try:
            names = os.listdir(self._root)
        except FileNotFoundError:
            return
        for name in sorted(names):
            if TOKEN.fullmatch(name):
                with contextlib.suppress(OSError, ValidationError):
                    yield JobRecord.model_validate_json((self.folder(name) / "job.json").read_bytes())

    def save(self, record: JobRecord) -> None:
        """Store a record. Raises Transient when the disk fails."""
        write_whole(self.folder(record.token) / "job.json", record.model_dump_json(exclude_defaults=True), record.token)


def write_whole(path: Path, text: str, token: str | None = None) -> None:
    """Replace a file atomically and durably. Raises Transient."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, text)
    except OSError as error:
        raise Transient(f"{path} cannot be written: {error.strerror}.", token=token) from None
