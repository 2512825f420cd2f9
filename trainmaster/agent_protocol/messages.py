"""Pydantic models of the messages between a master and its agents.

An agent calls, the master answers; nothing is pushed. Messages describe the whole state, never a change: an
agent reports all its containers, the answer names all containers that it should have. So a lost, repeated or late
message is harmless.
"""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from trainmaster.slots import SlotType

AGENT_ID = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
TOKEN = r"[A-Za-z][A-Za-z0-9_.-]{0,63}"  # noqa: S105
MAX_TEXT = 4000  # characters of a message that an agent sends
FIRST_ORDINARY_ID = 1000  # ids below it are root and system accounts, on every distribution that clusters use
MAX_REMAINS = 512 * 2**20  # bytes of what one container left
REGISTRY_LOGIN = "secrets/registry.json"
"""Among the files of a job: how an agent logs in where the job's image is, as Docker's AuthConfig. It travels with the
files, to the one agent that starts the job, and never in an order; the agent keeps it from the job."""
MAX_SLOTS = 1024  # of one agent
MAX_CONTAINERS = 10_000  # of one agent, those included that have ended and whose files it still has
MAX_NODES = 100_000  # of one job

Sentence = Annotated[str, Field(max_length=MAX_TEXT)]


class Wire(BaseModel):
    """Base of all messages. Unknown fields are ignored, because the other side may be newer."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class SlotFact(Wire):
    """One GPU, or one CPU share."""

    id: int = Field(ge=0, lt=MAX_SLOTS)
    type: SlotType
    name: str = Field("", max_length=256)
    uuid: str = Field("", max_length=256)


class ContainerState(enum.StrEnum):
    """State of one container, as its agent reports it."""

    PREPARING = "preparing"  # its files or its image are being fetched
    RUNNING = "running"
    EXITED = "exited"
    FAILED = "failed"  # it could not be started
    GONE = "gone"  # it was started here and no longer exists: it was removed from outside


class Blame(enum.StrEnum):
    """Who can fix the reason for which a container could not be started."""

    NOBODY = ""
    JOB = "job"  # the job asks for something impossible: a wrong image, an account that does not exist
    HOST = "host"  # the daemon, the disk, the network


class Delivery(enum.StrEnum):
    """A signal for a container's main process; each is delivered once."""

    PREEMPT = "preempt"  # SIGUSR2
    TERMINATE = "terminate"  # SIGTERM
    KILL = "kill"  # SIGKILL


class ContainerReport(Wire):
    """One container of ours on an agent."""

    token: str = Field(pattern=f"^{TOKEN}$")
    job_id: str = Field(max_length=128)
    node_rank: int = Field(0, ge=0, lt=MAX_NODES)
    num_nodes: int = Field(1, ge=1, le=MAX_NODES)
    slot_ids: tuple[int, ...] = Field(default=(), max_length=MAX_SLOTS)
    state: ContainerState
    container_id: str = Field("", max_length=128)
    exit_code: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    oom: bool = False
    message: Sentence = ""
    blame: Blame = Blame.NOBODY
    started_at: float | None = None
    finished_at: float | None = None
    delivered: tuple[Delivery, ...] = Field(default=(), max_length=16)
    handed_in: bool = False  # the files that it left have reached the master, or never can


class AgentReport(Wire):
    """An agent's report: itself, its slots and all its containers."""

    hostname: str = Field(max_length=256)
    version: str = Field(max_length=64)
    instance: str = Field(max_length=64)  # id of the process: it changes when the agent is restarted
    pool: str = Field("", max_length=256)
    slots: tuple[SlotFact, ...] = Field((), max_length=MAX_SLOTS)
    addresses: tuple[Annotated[str, Field(max_length=256)], ...] = Field((), max_length=64)
    containers: tuple[ContainerReport, ...] = Field(default=(), max_length=MAX_CONTAINERS)
    leaving: bool = False  # it was asked, on its own machine, to take no more jobs
    problem: Sentence = ""  # why it cannot run containers now
    known: str = Field("", max_length=64)  # revision of the orders that it has


class BindOrder(Wire):
    host_path: str
    container_path: str
    read_only: bool = False


class DeviceOrder(Wire):
    host_path: str
    container_path: str
    mode: str = "rwm"


class ContainerOrder(Wire):
    """One container that an agent should have."""

    token: str
    job_id: str
    node_rank: int
    num_nodes: int
    slot_ids: tuple[int, ...]
    image: str
    force_pull: bool = False
    binds: tuple[BindOrder, ...] = ()
    network_mode: str = "host"
    shm_size: int | None = None  # bytes
    devices: tuple[DeviceOrder, ...] = ()
    add_capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()
    root_capabilities: tuple[str, ...] = ()  # for a job that is root on the agent's machine, and no other
    user: str | None = None  # an account of the agent's machine; None leaves it to the agent
    python: str = "python3"
    environment: dict[str, str] = Field(default_factory=dict)
    shared: dict[str, str] = Field(default_factory=dict)  # SHA-256 of files that many jobs have in common, by name
    fresh: bool = True  # no agent has ever reported that it was started
    deliver: tuple[Delivery, ...] = ()


class Orders(Wire):
    """All containers that an agent should have, and those that it may remove with all they left."""

    revision: str
    heartbeat: float = Field(default=15.0, gt=0)  # seconds between two reports when nothing happens
    containers: tuple[ContainerOrder, ...] = ()
    forget: tuple[str, ...] = ()  # tokens
