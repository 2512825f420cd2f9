"""Main loop of the agent: compares the engine's containers with the master's orders, and acts on the difference.

Four kinds of threads: the main one decides and reports; one waits for changed orders from the master; one watches the
engine; a few workers do what takes long (fetching files and images, uploading what containers left).
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.agent.account import NoAccount, account_for
from trainmaster.agent.engine import ContainerError, Engine, EngineAway
from trainmaster.agent.folders import Folders
from trainmaster.agent.master_link import MasterLink, MasterUnavailable, MustLeave, NotEnrolled, NotGiven
from trainmaster.agent.mounts import Mounts, Sources
from trainmaster.agent.plan import STOPS, Action, ActionKind, Local, plan, reports
from trainmaster.agent.registry_login import login_for
from trainmaster.agent_protocol.archive import BadArchive, pack
from trainmaster.agent_protocol.messages import (
    MAX_REMAINS,
    MAX_TEXT,
    AgentReport,
    Blame,
    ContainerOrder,
    Delivery,
    Orders,
    SlotFact,
)
from trainmaster.containers import Bind, Device
from trainmaster.containers.docker import (
    MAX_PIDS,
    ContainerUser,
    DockerStart,
    check_binds,
    check_devices,
    container_body,
    parents_below_node,
)
from trainmaster.slots import SlotType
from trainmaster.templates import ControlCharacter
from trainmaster.version import VERSION

log = logging.getLogger(__name__)

WORKERS = 8  # long actions at once
PAUSES = (0.5, 1.0, 2.0, 5.0)  # seconds before each retry when the master or the engine does not answer
RETRY = 5.0  # seconds until an action that failed for a network error is tried again
JUST_STOPPED = 15.0  # seconds before the engine was found to be away, in which its stop may have ended containers

_SIGNALS = {Delivery.PREEMPT: "SIGUSR2", Delivery.TERMINATE: "SIGTERM", Delivery.KILL: "SIGKILL"}


@dataclass(frozen=True)
class AgentIdentity:
    """Name, place and settings of an agent; they do not change while it runs."""

    agent_id: str
    hostname: str
    pool: str
    slots: Sequence[SlotFact]
    addresses: Sequence[str]
    job_user: str | None  # account of jobs that name none
    memory: int | None = None  # bytes that one container may have at most
    pids: int = MAX_PIDS  # the same for processes and threads
    linked_users: bool = False  # whether jobs may be the accounts that the master names


class Agent:
    """One agent. `run` returns after `stop` was called; containers keep running.

    `key` is the enrolment key of the master's agents. It is used when this agent has no secret, or when the master does
    not accept the one it has."""

    def __init__(
        self,
        identity: AgentIdentity,
        link: MasterLink,
        engine: Engine,
        folders: Folders,
        key: str = "",
        mounts: Mounts | None = None,
    ) -> None:
        self._identity, self._link, self._engine, self._folders = identity, link, engine, folders
        self._key = key
        self._mounts = mounts or Mounts()
        self._sources: dict[str, Sources] = {}  # of containers that are made and not started, by token
        self._instance = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._notes: dict[str, Local] = {}  # what only this process knows of a job, by token
        self._orders = Orders(revision="")  # replaced by the main thread alone
        self._wake = threading.Event()
        self._answered = threading.Event()  # the changed orders have been fetched
        self._stop = threading.Event()
        self._leaving = False
        self._fault: MustLeave | None = None
        self._outages: list[tuple[float, float]] = []  # when the engine was away: from, to
        self._missed_at: float | None = None
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="action")

    def run(self) -> None:
        """Work until `stop`. Raises MustLeave."""
        threads = [
            threading.Thread(target=self._wait_for_orders, name="orders", daemon=True),
            threading.Thread(target=self._watch_engine, name="engine", daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            self._loop()
        finally:
            self._stop.set()
            self._link.stop_waiting()
            self._pool.shutdown(wait=True, cancel_futures=True)
            for thread in threads:
                thread.join(5.0)
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Make `run` return soon. Safe in a signal handler."""
        self._stop.set()
        self._wake.set()

    def drain(self) -> None:
        """Accept no more jobs; those that run here run to their end. Safe in a signal handler."""
        self._leaving = True
        self._wake.set()

    # -- deciding --------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        logged = ""
        tries = 0
        while not self._stop.is_set():
            self._wake.clear()
            try:
                self._turn()
                if logged:
                    log.info("master and Docker engine answer again")
                logged, tries = "", 0
                pause = self._orders.heartbeat
            except NotEnrolled as fault:
                if not self._key or not self._link.secret:
                    self._fault = fault
                    return
                self._link.secret = ""  # the next turn enrols again
                continue
            except MustLeave as fault:
                self._fault = fault
                return
            except (MasterUnavailable, EngineAway, OSError) as error:
                if str(error) != logged:
                    log.warning("%s; trying again", error)
                logged = str(error)
                pause = PAUSES[min(tries, len(PAUSES) - 1)]
                tries += 1
            self._wake.wait(pause)

    def _turn(self) -> None:
        """Report all containers and begin the actions that the orders need; repeat while the orders change."""
        if not self._link.secret:
            self._folders.keep_secret(self._link.enrol(self._key))
            log.info("the master has given this agent a secret of its own")
        orders = self._orders
        report = AgentReport(
            hostname=self._identity.hostname,
            version=VERSION,
            instance=self._instance,
            pool=self._identity.pool,
            slots=tuple(self._identity.slots),
            addresses=tuple(self._identity.addresses),
            leaving=self._leaving,
            known=orders.revision,
        )
        try:
            local = self._local_state()
        except EngineAway as error:
            # The report says that nothing is known of the containers, so that the master does not count us as lost.
            self._link.sync(report.model_copy(update={"problem": str(error)[:MAX_TEXT]}))
            raise
        self._orders = self._link.sync(report.model_copy(update={"containers": reports(orders, local)}))
        self._answered.set()
        if self._orders.revision != orders.revision:
            self._wake.set()
        for action in plan(self._orders, local):
            self._begin(action, local.get(action.token, Local(action.token)))

    def _local_state(self) -> dict[str, Local]:
        """Return what this host knows of each job that has a container or files here, or an action under way."""
        # Read before the engine is asked: only this thread begins actions, so a job without one stays as the engine
        # then shows it. In the other order a container that has just been started would look as if it were gone.
        with self._lock:
            states = dict(self._notes)
        try:
            containers = self._engine.containers()
        except EngineAway:
            self._missed_at = self._missed_at or time.time()
            raise
        if self._missed_at is not None:
            self._outages.append((self._missed_at - JUST_STOPPED, time.time()))
            self._missed_at = None
        for token in self._folders.known():
            states.setdefault(token, Local(token))
        for container in containers:
            note = states.get(container.token, Local(container.token))
            ended = container.finished_at if container.ended else None
            interrupted = ended is not None and any(since <= ended <= until for since, until in self._outages)
            killed = Delivery.KILL in note.delivered or Delivery.TERMINATE in note.delivered
            states[container.token] = replace(
                note, seen=container, interrupted=interrupted and not killed and not container.oom
            )
        return {token: replace(note, started=self._folders.started(token)) for token, note in states.items()}

    # -- waiting ---------------------------------------------------------------------------------------------

    def _wait_for_orders(self) -> None:
        """Wake the loop when the orders change. The loop fetches them itself: with two readers an older answer could
        win."""
        tries = 0
        while not self._stop.is_set():
            if not self._answered.wait(1.0):
                continue
            known = self._orders.revision
            try:
                if self._link.wait(known).revision != known:
                    self._answered.clear()
                    self._wake.set()
                tries = 0
            except MustLeave as fault:
                self._fault = self._fault or fault
                self.stop()
            except (MasterUnavailable, NotGiven):
                self._stop.wait(PAUSES[min(tries, len(PAUSES) - 1)])
                tries += 1

    def _watch_engine(self) -> None:
        while not self._stop.is_set():
            try:
                self._engine.watch(self._wake.set, self._stop)
            except EngineAway:
                self._wake.set()
            self._stop.wait(1.0)

    # -- actions ---------------------------------------------------------------------------------------------

    def _begin(self, action: Action, known: Local) -> None:
        if action.kind is ActionKind.DELIVER:
            self._deliver(action, known)
            return
        handlers: dict[ActionKind, Callable[[Action, Local], None]] = {
            ActionKind.START: self._start,
            ActionKind.HAND_IN: self._hand_in,
            ActionKind.REMOVE: self._remove,
        }
        self._note(action.token, busy=True)
        self._pool.submit(self._do, handlers[action.kind], action, known)

    def _do(self, handler: Callable[[Action, Local], None], action: Action, known: Local) -> None:
        gone = False
        try:
            handler(action, known)
            gone = action.kind is ActionKind.REMOVE
        except (MasterUnavailable, EngineAway, OSError) as error:
            log.warning("%s: %s failed, trying again: %s", action.token, action.kind.value, error)
            self._stop.wait(RETRY)
        except MustLeave as fault:
            self._fault = self._fault or fault
            self.stop()
        except Exception:  # a bug: the other containers must not be affected by it
            log.exception("%s: %s failed", action.token, action.kind.value)
            self._stop.wait(RETRY)
        finally:
            self._note(action.token, busy=False)
            if gone:
                with self._lock:
                    del self._notes[action.token]
            self._wake.set()

    def _note(self, token: str, **changes: object) -> None:
        with self._lock:
            self._notes[token] = replace(self._notes.get(token, Local(token)), **changes)  # type: ignore[arg-type]

    def _deliver(self, action: Action, known: Local) -> None:
        assert known.seen is not None
        for delivery in action.deliveries:
            log.info("%s: %s", action.token, _SIGNALS[delivery])
            self._engine.signal(known.seen.id, _SIGNALS[delivery])
        self._note(action.token, delivered=known.delivered | set(action.deliveries))
        self._wake.set()

    def _start(self, action: Action, known: Local) -> None:
        order = action.order
        assert order is not None
        try:
            container = known.seen.id if known.seen else self._create(order)
            if self._still_wanted(order):
                # Written before the start, so that a container that is missing afterwards counts as removed, not as
                # new.
                self._folders.mark_started(order.token, order.job_id)
                self._engine.start(container)
                self._check_mounts(order.token, container)
                log.info("%s: started as %s", order.token, container[:12])
        except ContainerError as error:
            self._sources.pop(order.token, None)
            self._note(order.token, failure=str(error), blame=error.blame)
        except (NoAccount, ControlCharacter, NotGiven) as error:
            self._note(order.token, failure=str(error), blame=Blame.JOB)
        except BadArchive as error:
            self._note(order.token, failure=f"Its files could not be read: {error}.", blame=Blame.HOST)

    def _create(self, order: ContainerOrder) -> str:
        account = account_for(order.user, self._identity.job_user, linked=self._identity.linked_users)
        asked = [Bind(bind.host_path, bind.container_path, bind.read_only) for bind in order.binds]
        devices = [Device(device.host_path, device.container_path, device.mode) for device in order.devices]
        if wrong := [*check_binds(asked), *check_devices(devices)]:
            raise ContainerError(" ".join(wrong), Blame.JOB)
        with self._link.files(order.token, self._folders.shared.standing(order.shared)) as files:
            inside = parents_below_node(asked)
            secret = self._folders.stage(order.token, files, account, self._link.url, inside, order.shared)
        if order.force_pull or not self._engine.has_image(order.image):
            log.info("%s: pulling %s", order.token, order.image)
            self._engine.pull(order.image, login_for(order.image, secret))
        if order.add_capabilities and account.uid:
            log.warning("%s: capabilities have no effect: it runs as %s, not as root", order.token, account.name)
        sources = self._sources[order.token] = self._mounts.open(asked, account)
        digest = self._engine.image_digest(order.image)
        body = container_body(self._described(order, account, sources.binds, devices, digest))
        return self._engine.create(body, f"tm-{order.token}-{order.node_rank}")

    def _check_mounts(self, token: str, container: str) -> None:
        """End the container and raise ContainerError when it sees another source than was opened for it."""
        sources = self._sources.pop(token, None)
        pid = self._engine.pid(container) if sources is not None and sources.binds else 0
        if sources is None or not pid:
            return
        if wrong := sources.differences(pid):
            self._engine.signal(container, "SIGKILL")
            log.error("%s: its mounts were replaced while it was started: %s", token, ", ".join(wrong))
            raise ContainerError(f"bind_mounts: {wrong[0]} was replaced while the container was started.", Blame.JOB)

    def _described(
        self,
        order: ContainerOrder,
        account: ContainerUser,
        binds: Sequence[Bind],
        devices: Sequence[Device],
        image_digest: str,
    ) -> DockerStart:
        slots = [slot for slot in self._identity.slots if slot.id in order.slot_ids]
        return DockerStart(
            image=order.image,
            job_folder=self._folders.job(order.token),
            shared=[self._folders.shared.folder(sha256) for sha256 in order.shared.values()],
            node_folder=self._folders.node(order.token),
            home=self._folders.home(order.token),
            account=account,
            labels=self._engine.labels(
                order.token, order.job_id, order.node_rank, order.num_nodes, tuple(order.slot_ids)
            ),
            variables={**order.environment, "TRAINMASTER_IMAGE_DIGEST": image_digest},
            binds=binds,
            gpus=[slot.uuid for slot in slots if slot.type is SlotType.CUDA],
            rocm=any(slot.type is SlotType.ROCM for slot in slots),
            network_mode=order.network_mode,
            shm_size=order.shm_size,
            devices=devices,
            add_capabilities=(*order.add_capabilities, *(() if account.uid else order.root_capabilities)),
            drop_capabilities=order.drop_capabilities,
            python=order.python,
            memory=self._identity.memory,
            pids=self._identity.pids,
        )

    def _still_wanted(self, order: ContainerOrder) -> bool:
        """Whether the order still stands; fetching files and images may have taken minutes."""
        for now in self._orders.containers:
            if now.token == order.token and now.job_id == order.job_id:
                return not STOPS & set(now.deliver)
        return False

    def _hand_in(self, action: Action, known: Local) -> None:
        order = action.order
        assert order is not None
        output = self._engine.output(known.seen.id) if known.seen else b""
        items = self._folders.remains(order.token, order.node_rank, output, MAX_REMAINS)
        try:
            self._link.hand_in(order.token, order.node_rank, pack(items))
        except NotGiven as error:
            log.warning("%s: the master refuses the files that it left: %s", order.token, error)
        finally:
            for item in items:
                item.handle.close()
        self._note(order.token, handed_in=True)

    def _remove(self, action: Action, known: Local) -> None:
        if known.seen is not None:
            self._engine.remove(known.seen.id)
        self._folders.remove(action.token)
        log.info("%s: removed", action.token)


def data_folder(path: str | None, agent_id: str) -> Path:
    """Return the folder in which an agent keeps job folders and its secret."""
    return Path(path) if path else Path("/var/lib/trainmaster-agent") / agent_id
