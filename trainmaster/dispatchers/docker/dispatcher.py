"""Dispatcher for Docker hosts: implements the dispatcher contract and the agents' API on one reconciler."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TextIO

from trainmaster.agent_protocol.archive import BadArchive, Item, open_below, pack, unpack
from trainmaster.agent_protocol.messages import MAX_REMAINS, AgentReport, BindOrder, Delivery, DeviceOrder, Orders
from trainmaster.containers import Bind, Device, container_runtime
from trainmaster.containers.docker import check_binds, check_capabilities, check_devices
from trainmaster.dispatchers.base import (
    BindMount,
    Capabilities,
    DeviceMount,
    DispatcherOptions,
    Explanation,
    JobFeature,
    JobRef,
    JobSpec,
    Observation,
    Pool,
    Rejected,
    Remains,
    Setup,
    SharedFile,
    Signal,
    Snapshot,
    StreamPosition,
    Traits,
    Transient,
    Unreachable,
    UserOptions,
)
from trainmaster.dispatchers.cluster.folder import JobFolder, check_token, with_cause
from trainmaster.dispatchers.contract.agents import INBOX_PREFIX, AgentView, NotLeading, PoolPolicy, QueueEntry
from trainmaster.dispatchers.docker import views
from trainmaster.dispatchers.docker.enrolment import Enrolment
from trainmaster.dispatchers.docker.fleet import Fleet, FleetAgent
from trainmaster.dispatchers.docker.job_record import JobRecord, JobRequest
from trainmaster.dispatchers.docker.options import DockerOptions
from trainmaster.dispatchers.docker.reconciler import Reconciler

log = logging.getLogger(__name__)

LOCK_FILE = ".lead.lock"
RUNTIMES = ("docker", "none")
_DELIVERIES = {Signal.PREEMPT: Delivery.PREEMPT, Signal.TERMINATE: Delivery.TERMINATE}


class DockerDispatcher:
    """Jobs as containers on hosts that run our agent. It does nothing until `lead` is called."""

    contract_version: ClassVar[int] = 2
    kind: ClassVar[str] = "docker"
    traits: ClassVar[Traits] = Traits(
        agents=True,
        supports=frozenset(JobFeature),
        user_section="slurm",
        resources_type="docker-container",
        section_keys=frozenset({"slots_per_node"}),
    )
    Options: ClassVar[type[DispatcherOptions]] = DockerOptions
    UserOptions: ClassVar[type[UserOptions] | None] = None

    def __init__(self, setup: Setup) -> None:
        """Read the options. Raises Rejected for a wrong configuration."""
        self.name = setup.name
        self._prefix = setup.prefix
        self._root = setup.job_root
        self._options = DockerOptions.read(setup.options)
        self._enrolment = Enrolment(self._root, self._options.agent_token_file)
        self._foreman = Reconciler(self._root, self._prefix, self._options)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._leads = threading.Event()

    # -- leading ---------------------------------------------------------------------------------------------

    def lead(self) -> None:
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name=f"reconciler-{self.name}", daemon=True)
            self._thread.start()

    def follow(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            self._wake.set()
            thread.join()

    def close(self) -> None:
        self.follow()

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            while not self._stop.is_set():
                try:
                    stack.enter_context(_lock(self._root / LOCK_FILE))
                    break
                except OSError:
                    self._stop.wait(0.2)  # the previous leader is about to release it
            if self._stop.is_set():
                return
            for unread in self._root.glob(f"{INBOX_PREFIX}*"):  # uploads that a killed master was receiving
                unread.unlink(missing_ok=True)
            self._foreman.load()
            self._leads.set()
            log.info("agents of %s enrol with the key in %s", self.name, self._enrolment.key_file)
            try:
                while not self._stop.is_set():
                    self._wake.clear()
                    try:
                        pause = self._foreman.reconcile()
                    except Exception:  # the loop must outlive any bug; the next pass compares again
                        log.exception("reconciling the agents of %s failed; trying again", self.name)
                        pause = 1.0
                    self._wake.wait(pause)
            finally:
                self._leads.clear()
                for agent in list(self._foreman.fleet.agents.values()):
                    agent.wake()

    def _leading(self) -> Reconciler:
        if not self._leads.is_set():
            raise NotLeading(
                "This master is not the leader: another one is, or this one is about to be. Try again in a moment."
            )
        return self._foreman

    def _driving(self) -> Reconciler:
        """As `_leading`, but raises Unreachable: the controller may call a moment before this master leads."""
        if not self._leads.wait(5.0):
            raise Unreachable(f"The folder {self._root} is locked by another master; this one cannot schedule.")
        return self._foreman

    # -- the contract ----------------------------------------------------------------------------------------

    def probe(self) -> Capabilities:
        from trainmaster.version import VERSION

        return Capabilities(
            scheduler="docker",
            version=VERSION,
            accounting=True,  # a job's folder records how it ended, as long as it exists
            impersonation=True,
            schedules=True,
            quiet_period=0.0,
            poll_interval=self._options.poll_interval,
        )

    def pools(self) -> Sequence[Pool]:
        with self._foreman.lock:
            return views.pools(self._options, self._known_agents())

    def _known_agents(self) -> Sequence[FleetAgent]:
        """Return the agents; on a master that does not lead, as the leader has stored them. The lock is held."""
        if self._leads.is_set():
            return list(self._foreman.fleet.agents.values())
        fleet = Fleet(self._root)
        fleet.load(time.time())
        return list(fleet.agents.values())

    def check(self, spec: JobSpec) -> Sequence[str]:
        complaints = []
        pool = self._options.pool(spec.pool) if spec.pool else None
        if pool is None:
            names = ", ".join(each.pool_name for each in self._options.pools)
            complaints.append(f"There is no pool {spec.pool!r} here; there are: {names}.")
        if spec.container.runtime not in RUNTIMES:
            complaints.append(
                f"There is no container runtime {spec.container.runtime!r} here: agents start Docker containers."
            )
        if not _image(spec):
            complaints.append(
                "No container image is given: set environment.image to one that the agents can pull or have."
            )
        if spec.options.get("sbatch_args"):
            complaints.append("There is no batch scheduler here, so scheduler options (sbatch_args) have no effect.")
        complaints += _complaints(spec)
        if pool is not None:
            with self._foreman.lock:
                agents = [agent for agent in self._known_agents() if agent.settings.pool == pool.pool_name]
                complaints += views.never(_wanted(spec, ()), agents)
        return complaints

    def remarks(self, spec: JobSpec) -> Sequence[str]:  # noqa: ARG002 every job runs as asked
        return ()

    def submit(self, spec: JobSpec) -> JobRef:
        folder = JobFolder(self._root, check_token(spec.token, self._prefix))
        reconciler = self._driving()
        if (known := reconciler.jobs.get(spec.token)) is not None:
            return JobRef(spec.token, known.job_id)
        if self._options.pool(spec.pool) is None:
            raise Rejected(f"There is no pool {spec.pool!r} here.", token=spec.token)
        if bad := _control_characters(spec):
            raise Rejected(bad, token=spec.token)
        if wrong := _complaints(spec):
            raise Rejected(" ".join(wrong), token=spec.token)
        folder.stage_sharing(spec.files)
        return JobRef(spec.token, reconciler.submit(spec.token, _wanted(spec, tuple(sorted(spec.files)))).job_id)

    def observe(self) -> Snapshot:
        reconciler = self._driving()
        with reconciler.lock:
            taken_at = time.time()
            jobs = [record for record in reconciler.jobs.values() if record.token.startswith(self._prefix)]
            ahead = views.positions(reconciler)
            return Snapshot(taken_at, tuple(self._observation(reconciler, record, ahead) for record in jobs))

    def _observation(self, reconciler: Reconciler, record: JobRecord, ahead: dict[str, int]) -> Observation:
        sight = views.status_of(reconciler, record, ahead)
        return Observation(
            token=record.token,
            job_id=record.job_id,
            state=sight.state,
            raw_state=sight.raw,
            explanation=sight.text,
            exit_code=record.ended.exit_code if record.ended else None,
            exit_signal=record.ended.exit_signal if record.ended else None,
            nodes=tuple(rank.agent_id for rank in record.ranks),
            started_at=min((rank.started_at for rank in record.ranks if rank.started_at), default=None),
            submitted_at=record.submitted_at,
            never=sight.never,
            user=record.wanted.user,
        )

    def cancel(self, refs: Sequence[JobRef]) -> None:
        reconciler = self._driving()
        for ref in refs:
            reconciler.cancel(ref.token)

    def signal(self, refs: Sequence[JobRef], signal: Signal) -> None:
        reconciler = self._driving()
        for ref in refs:
            reconciler.signal(ref.token, _DELIVERIES[signal])

    def explain(self, ref: JobRef) -> Explanation:
        reconciler = self._driving()
        with reconciler.lock:
            record = reconciler.jobs.get(ref.token)
            if record is None:
                return Explanation("There is no such job on the agents of this master.")
            sight = views.status_of(reconciler, record, views.positions(reconciler))
        code = record.ended.exit_code if record.ended else None
        signal = record.ended.exit_signal if record.ended else None
        return Explanation(sight.text or "The job runs.", sight.state, sight.raw, code, signal)

    def collect(
        self,
        token: str,
        user: str | None = None,  # noqa: ARG002 what agents sent is ours
        places: Mapping[str, StreamPosition] | None = None,
        most: int = 2**30,
    ) -> Remains:
        folder = JobFolder(self._root, token)
        remains = folder.collect(places, most)
        tails = {}
        for path in sorted(folder.path.glob("output.*.txt")):
            with contextlib.suppress(OSError):
                tails[path.name.split(".")[1]] = path.read_bytes().decode(errors="replace")
        several = len(tails) > 1
        parts = [f"-- node {number} --\n{text}" if several else text for number, text in tails.items()]
        return with_cause(replace(remains, output_tail="\n".join(parts)), container_runtime("none"))

    def forget(self, token: str, user: str | None = None) -> None:  # noqa: ARG002 the folder is ours
        folder = JobFolder(self._root, token)
        if not self._driving().forget(token):
            raise Transient(f"The job {token} has not ended; cancel it before its folder is removed.", token=token)
        folder.forget()

    def log_path(self, token: str) -> Path | None:  # noqa: ARG002 containers write on their hosts
        return None

    # -- the hub ---------------------------------------------------------------------------------------------

    def accepts(self, agent_id: str, secret: str) -> bool:
        return self._enrolment.accepts(agent_id, secret)

    def enrol(self, agent_id: str, key: str) -> str:
        self._leading()
        return self._enrolment.enrol(agent_id, key)

    def revoke(self, agent_id: str) -> None:
        self._leading()
        self._enrolment.revoke(agent_id)

    def sync(self, agent_id: str, report: AgentReport) -> Orders:
        orders = self._leading().sync(agent_id, report)
        self._wake.set()
        return orders

    def orders(self, agent_id: str) -> Orders:
        return self._leading().orders(agent_id)

    def subscribe(self, agent_id: str, changed: Callable[[], None]) -> Callable[[], None]:
        with self._foreman.lock:
            agent = self._foreman.fleet.agents.get(agent_id)
            if agent is None:
                return lambda: None
            agent.listeners.add(changed)
            return lambda: agent.listeners.discard(changed)

    def job_files(self, agent_id: str, token: str, without: Collection[str] = ()) -> Iterator[bytes]:
        reconciler = self._leading()
        with reconciler.lock:
            record = self._job_of(reconciler, agent_id, token)
        folder = JobFolder(self._root, token)
        try:
            items = [_staged(folder, name, record.wanted.shared) for name in record.wanted.files if name not in without]
        except OSError as error:
            raise Rejected(f"The files of {token} no longer exist: {error}.", token=token) from None
        return pack(items)

    def take_remains(self, agent_id: str, token: str, node_rank: int, archive: Path) -> None:
        reconciler = self._leading()
        with reconciler.lock:
            record = self._job_of(reconciler, agent_id, token)
            if not 0 <= node_rank < len(record.ranks) or record.ranks[node_rank].agent_id != agent_id:
                raise Rejected(f"Node {node_rank} of {token} does not run on agent {agent_id}.", token=token)
        folder = JobFolder(self._root, token).path
        try:
            with archive.open("rb") as source:
                unpack(source, folder, (f"exit/{node_rank}.json", "spool/", "output.txt"), MAX_REMAINS)
            if (folder / "output.txt").exists():
                (folder / "output.txt").replace(folder / f"output.{node_rank}.txt")
        except BadArchive as error:
            raise Rejected(f"The files that {token} left cannot be accepted: {error}.", token=token) from None
        except OSError as error:
            raise Transient(f"The files that {token} left cannot be stored: {error.strerror}.", token=token) from None

    def _job_of(self, reconciler: Reconciler, agent_id: str, token: str) -> JobRecord:
        record = reconciler.jobs.get(token)
        if record is None or all(rank.agent_id != agent_id for rank in record.ranks):
            raise Rejected(f"Agent {agent_id} does not run the job {token!r}.", token=token)
        return record

    def agents(self) -> Sequence[AgentView]:
        reconciler = self._foreman
        with reconciler.lock:

            def job_id(token: str) -> str:
                return reconciler.jobs[token].job_id if token in reconciler.jobs else ""

            return [agent.view(job_id) for agent in sorted(self._known_agents(), key=lambda agent: agent.id)]

    def enable(self, agent_id: str, slot: int | None = None) -> None:
        self._set(agent_id, slot, enabled=True, drain=False)

    def disable(self, agent_id: str, slot: int | None = None, *, drain: bool = False) -> None:
        self._set(agent_id, slot, enabled=False, drain=drain)

    def _set(self, agent_id: str, slot: int | None, *, enabled: bool, drain: bool) -> None:
        reconciler = self._leading()
        with reconciler.lock:
            agent = reconciler.fleet.get(agent_id)
            _change_settings(agent, slot, enabled=enabled, drain=drain)
            reconciler.fleet.save()
            if not enabled and not drain:
                tokens = set(agent.here) if slot is None else {agent.used[slot]} if slot in agent.used else set()
                what = f"agent {agent_id}" if slot is None else f"slot {slot} of agent {agent_id}"
                reconciler.evict(tokens, f"An administrator disabled {what}.")
            reconciler.offer(agent)

    def policies(self) -> Sequence[PoolPolicy]:
        with self._foreman.lock:
            return views.policies(self._options, self._known_agents())

    def queue(self, pool: str) -> Sequence[QueueEntry]:
        reconciler = self._leading()
        with reconciler.lock:
            return views.queue(reconciler, pool)

    def reprioritise(self, group: str, *, priority: int | None = None, weight: float | None = None) -> None:
        reconciler = self._leading()
        changes = {key: value for key, value in (("priority", priority), ("weight", weight)) if value is not None}

        def alter(record: JobRecord) -> JobRecord:
            return record.model_copy(update={"wanted": record.wanted.model_copy(update=changes)})

        with reconciler.lock:
            reconciler.change([record.token for record in views.members(reconciler, group)], alter)

    def move(self, group: str, anchor: str, *, ahead: bool) -> None:
        reconciler = self._leading()
        with reconciler.lock:
            moved, fixed = views.members(reconciler, group), views.members(reconciler, anchor)
            if not moved or not fixed or {r.wanted.pool for r in moved} != {r.wanted.pool for r in fixed}:
                raise Rejected(
                    "Both jobs must be in the queue of the same pool for one to be put before or after the other."
                )
            position = views.position_beside(reconciler, group, fixed[0], ahead=ahead)
            priority = fixed[0].wanted.priority

            def alter(record: JobRecord) -> JobRecord:
                wanted = record.wanted.model_copy(update={"priority": priority})
                return record.model_copy(update={"position": position, "wanted": wanted})

            reconciler.change([record.token for record in moved], alter)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[TextIO]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle


def _change_settings(agent: FleetAgent, slot: int | None, *, enabled: bool, drain: bool) -> None:
    settings = agent.settings
    if slot is None:
        agent.settings = settings.model_copy(update={"enabled": enabled, "draining": drain})
        return
    if all(slot != fact.id for fact in settings.slots):
        raise Rejected(f"Agent {agent.id} has no slot {slot}.")
    disabled = {*settings.disabled_slots} - {slot} | (set() if enabled else {slot})
    draining = {*settings.draining_slots} - {slot} | ({slot} if drain else set())
    agent.settings = settings.model_copy(
        update={"disabled_slots": tuple(sorted(disabled)), "draining_slots": tuple(sorted(draining))}
    )


def _staged(folder: JobFolder, name: str, shared: Mapping[str, str]) -> Item:
    """Open a file of the job folder, or what the link in its place leads to. Raises OSError."""
    if name in shared and (folder.path / name).is_symlink():
        return open_below(folder.path.parent / folder.cache_dir / shared[name], name)
    return open_below(folder.path, name)


def _image(spec: JobSpec) -> str:
    return spec.container.image.removeprefix("docker://")


def _complaints(spec: JobSpec) -> list[str]:
    wanted = spec.container
    return [
        *check_binds([Bind(b.host_path, b.container_path, b.read_only) for b in wanted.binds]),
        *check_devices([Device(d.host_path, d.container_path, d.mode) for d in wanted.devices]),
        *check_capabilities([*wanted.add_capabilities, *wanted.drop_capabilities]),
    ]


def _wanted(spec: JobSpec, files: tuple[str, ...]) -> JobRequest:
    return JobRequest(
        pool=spec.pool,
        slots=spec.slots,
        slots_per_node=spec.slots_per_node,
        single_node=spec.single_node,
        avoid=tuple(spec.exclude_nodes),
        image=_image(spec),
        force_pull=spec.container.force_pull,
        binds=tuple(
            BindOrder(host_path=b.host_path, container_path=b.container_path, read_only=b.read_only)
            for b in spec.container.binds
        ),
        shm_size=spec.container.shm_size,
        network_mode=spec.container.network_mode,
        devices=tuple(
            DeviceOrder(host_path=d.host_path, container_path=d.container_path, mode=d.mode)
            for d in spec.container.devices
        ),
        add_capabilities=tuple(spec.container.add_capabilities),
        drop_capabilities=tuple(spec.container.drop_capabilities),
        root_capabilities=tuple(spec.container.root_capabilities),
        user=spec.user,
        priority=spec.priority,
        group=spec.group,
        weight=spec.weight,
        max_slots=spec.max_slots,
        preemptible=spec.preemptible,
        files=files,
        shared={name: file.sha256 for name, file in spec.files.items() if isinstance(file, SharedFile)},
    )


def _control_characters(spec: JobSpec) -> str | None:
    placed: list[BindMount | DeviceMount] = [*spec.container.binds, *spec.container.devices]
    paths = [path for each in placed for path in (each.host_path, each.container_path)]
    texts = [spec.container.image, spec.container.network_mode, *paths]
    for text in texts:
        if any(ord(character) < 32 or ord(character) == 127 for character in text):
            return f"A value for a container may not hold control characters: {text!r}."
    return None
