"""The clusters that this master drives, for other services: the pools that exist, and which cluster serves which."""

from __future__ import annotations

import difflib
import logging
import os
import pwd
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import func, select

from trainmaster.dispatchers.base import (
    Capabilities,
    ClusterFacts,
    Dispatcher,
    DispatcherError,
    ExternalJob,
    Pool,
    Snapshot,
)
from trainmaster.master.db.tables import Allocation
from trainmaster.master.lifecycle.states import SubmissionState
from trainmaster.master.services.errors import Invalid, Unavailable
from trainmaster.master.services.store import Store

log = logging.getLogger(__name__)

POOLS_FRESH = 10.0  # seconds for which a listing of pools is used
EXTERNAL_FRESH = 15.0  # the same for other people's jobs


@dataclass(frozen=True)
class DerivedPool:
    """A pool that the administrator defines on top of a partition."""

    name: str
    partition: str
    description: str = ""


@dataclass(frozen=True)
class PoolSettings:
    """The administrator's settings for jobs of a pool, beside those that an experiment's configuration holds."""

    environment: Mapping[str, str] = field(default_factory=dict)
    startup_hooks: Sequence[str] = ()  # shell scripts, in the order in which they run
    work_dir: str = ""  # the folder where commands, notebooks and shells start by default
    network_mode: str = ""  # of Docker's containers; empty: the cluster's setting
    shm_size: int | None = None  # default bytes of /dev/shm; None: the engine's own


@dataclass
class Announcement:
    """Whether this master has written its address to a file beside a cluster's job folders, and that file's owner.
    Jobs get the file's path only then: before that, it may be anybody's."""

    made: bool = False
    owner: int | None = None  # uid

    def note(self, owner: int | None) -> None:
        self.owner = owner
        self.made = True


@dataclass(frozen=True)
class Cluster:
    """One configured resource manager."""

    name: str
    dispatcher: Dispatcher
    job_root: Path
    master_url: str = ""  # the master's address for this cluster's jobs; empty: the common one
    container_runtime: str = "none"
    node_data: str = ""  # the folder of its nodes for copies of data; empty: there is none
    node_data_limit: int | None = None  # bytes of all copies of an account on a node
    derived: Sequence[DerivedPool] = ()
    pool_prefix: str = ""
    default_compute: str | None = None
    default_aux: str | None = None
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    settings: Mapping[str, PoolSettings] = field(default_factory=dict)  # by pool in lower case; "" for all others
    announcement: Announcement = field(default_factory=Announcement, compare=False)

    def settings_of(self, pool: str, partition: str) -> PoolSettings:
        """Return settings for the jobs of a pool on a partition."""
        for name in (pool.lower(), partition.lower(), ""):
            if name in self.settings:
                return self.settings[name]
        return PoolSettings()

    @property
    def kind(self) -> str:
        return self.dispatcher.kind

    @property
    def account(self) -> str:
        """The log-in account of jobs that name none."""
        return self.facts.account or pwd.getpwuid(os.geteuid()).pw_name

    @property
    def master_url_file(self) -> Path:
        """The file in which jobs read the master's present address when they cannot reach it."""
        return self.job_root / "master-url"


@dataclass(frozen=True)
class ServedPool:
    """A pool and the cluster that serves it. `partition` is the cluster's own name for it, `plain` the pool's name
    before the cluster's was put in front."""

    cluster: Cluster
    pool: Pool
    partition: str
    plain: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """What the pool may be called: its own name first."""
        return self.pool.name, f"{self.cluster.name}.{self.plain or self.pool.name}"


def namesake(cluster: str, plain: str, first: str) -> str:
    """Return the sentence for a pool that is named by its cluster."""
    return (
        f"The pool {plain} of {cluster} is called {cluster}.{plain}, because {first} has a pool of that name; "
        "pool_prefix gives a cluster's pools names of your own."
    )


def live_jobs(store: Store) -> dict[str, int]:
    """Per resource manager: attempts that its scheduler may hold."""
    query = (
        select(Allocation.dispatcher, func.count())
        .where(Allocation.ended_at.is_(None), Allocation.submission != SubmissionState.NEW.value)
        .group_by(Allocation.dispatcher)
    )
    with store.transaction() as session:
        return {name: int(count) for name, count in session.execute(query)}


class Clusters:
    """Thread-safe. A cluster that cannot be reached keeps its last listing."""

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        self._clusters = {cluster.name: cluster for cluster in clusters}
        self._retired: list[Dispatcher] = []
        self._lock = threading.Lock()
        self._pools: dict[str, Sequence[Pool]] = {}
        self._asked: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        self._capabilities: dict[str, Capabilities] = {}
        self._looking: dict[str, threading.Lock] = {}
        self._external: dict[str, tuple[float, Sequence[ExternalJob]]] = {}
        self._passes: dict[str, float] = {}
        self._looks: dict[str, float] = {}
        self._namesakes: dict[tuple[str, str], str] = {}  # cluster and pool -> the cluster that has the name already

    def __iter__(self) -> Iterator[Cluster]:
        return iter(tuple(self._clusters.values()))

    def replace(self, clusters: Sequence[Cluster]) -> None:
        """Replace the clusters. Dispatchers that are no longer used stay open until `close_retired`."""
        kept = {id(cluster.dispatcher) for cluster in clusters}
        with self._lock:
            gone = [one for one in self._clusters.values() if id(one.dispatcher) not in kept]
            self._retired += [cluster.dispatcher for cluster in gone]
            self._clusters = {cluster.name: cluster for cluster in clusters}
            for cluster in gone:
                for known in (
                    self._pools,
                    self._asked,
                    self._problems,
                    self._capabilities,
                    self._passes,
                    self._looks,
                    self._external,
                ):
                    known.pop(cluster.name, None)

    def close_retired(self) -> None:
        """Close the dispatchers that `replace` put aside. Only when nothing drives jobs through them any more."""
        with self._lock:
            retired, self._retired = self._retired, []
        for dispatcher in retired:
            dispatcher.close()

    def close(self) -> None:
        """Close all dispatchers; jobs go on."""
        self.close_retired()
        for cluster in self:
            cluster.dispatcher.close()

    def get(self, name: str) -> Cluster:
        return self._clusters[name]

    @property
    def run_as_users(self) -> bool:
        """Whether jobs on any cluster run as their owners' accounts."""
        return any(cluster.facts.runs_as_users for cluster in self)

    @property
    def first(self) -> Cluster:
        return next(iter(self._clusters.values()))

    def capabilities(self, cluster: Cluster) -> Capabilities:
        """Return the result of `probe`, called once. Raises DispatcherError while the cluster cannot be reached."""
        with self._lock:
            capabilities = self._capabilities.get(cluster.name)
        if capabilities is None:
            capabilities = cluster.dispatcher.probe()
            with self._lock:
                self._capabilities[cluster.name] = capabilities
        return capabilities

    def schedules(self, cluster: Cluster) -> bool:
        """Whether a cluster's dispatcher orders jobs itself; False while it cannot be reached."""
        try:
            return self.capabilities(cluster).schedules
        except DispatcherError:
            return False

    def note_pass(self, cluster: Cluster, seconds: float) -> None:
        """Store the seconds of the controller's last pass over `cluster`."""
        self._passes[cluster.name] = seconds

    def last_pass(self, cluster: Cluster) -> float | None:
        """Seconds of the controller's last pass; None where another master leads."""
        return self._passes.get(cluster.name)

    def last_look(self, cluster: Cluster) -> float | None:
        """Seconds of the last observation of the cluster; None before the first."""
        return self._looks.get(cluster.name)

    def observe(self, cluster: Cluster) -> Snapshot:
        """Observe the cluster, one query at a time. Raises DispatcherError."""
        with self._look_at(cluster):
            return self._observed(cluster)

    def external_jobs(self) -> list[ExternalJob]:
        """Other people's jobs, where a cluster lists them. It sends a query of its own only without a recent
        observation: on a master that does not lead, or while no job of ours is there."""
        external: list[ExternalJob] = []
        for cluster in self:
            if cluster.facts.shows_external:
                jobs = self._recent_external(cluster)
                names = {pool.partition: pool.pool.name for pool in reversed(self.pools()) if pool.cluster is cluster}
                external += [replace(job, pool=names.get(job.pool, job.pool)) for job in jobs]
        return external

    def _recent_external(self, cluster: Cluster) -> Sequence[ExternalJob]:
        at, jobs = self._external.get(cluster.name, (float("-inf"), ()))
        lock = self._look_at(cluster)
        # No caller waits here for a cluster that is slow to answer another caller.
        if time.monotonic() - at < EXTERNAL_FRESH or not lock.acquire(blocking=False):
            return jobs
        try:
            return self._observed(cluster).external
        except DispatcherError:
            self._external[cluster.name] = time.monotonic(), jobs
            return jobs
        finally:
            lock.release()

    def _observed(self, cluster: Cluster) -> Snapshot:
        began = time.monotonic()
        snapshot = cluster.dispatcher.observe()
        ended = time.monotonic()
        self._looks[cluster.name] = ended - began
        self._external[cluster.name] = ended, snapshot.external
        return snapshot

    def _look_at(self, cluster: Cluster) -> threading.Lock:
        with self._lock:
            return self._looking.setdefault(cluster.name, threading.Lock())

    def problem(self, cluster: Cluster) -> str | None:
        """Why the last query to the cluster failed, if it did."""
        return self._problems.get(cluster.name)

    def pools(self, *, fresh: float = POOLS_FRESH) -> list[ServedPool]:
        """All pools, derived ones included, in the order of configuration. A pool that has the name of another
        cluster's is called CLUSTER.NAME; that of the first cluster keeps its name, which experiments, reservations and
        scripts use already."""
        pools: dict[str, ServedPool] = {}
        renamed: dict[tuple[str, str], str] = {}
        for cluster in self:
            for served in self._of(cluster, fresh):
                plain = served.pool.name
                first = pools.get(plain)
                if first is not None and first.cluster is cluster:
                    continue  # a partition of that name comes before a pool on top of another
                name = plain if first is None else f"{cluster.name}.{plain}"
                if first is not None:
                    renamed[cluster.name, plain] = first.cluster.name
                pools[name] = replace(served, pool=replace(served.pool, name=name), plain=plain)
        self._note_namesakes(renamed)
        return list(pools.values())

    def _note_namesakes(self, renamed: Mapping[tuple[str, str], str]) -> None:
        for (cluster, plain), first in renamed.items():
            if (cluster, plain) not in self._namesakes:
                log.warning("%s", namesake(cluster, plain, first))
        self._namesakes = dict(renamed)

    def namesakes(self, cluster: Cluster) -> list[str]:
        """Sentences on pools of a cluster whose names another one has already, as of the last listing."""
        namesakes = dict(self._namesakes)
        return [namesake(name, plain, first) for (name, plain), first in namesakes.items() if name == cluster.name]

    def resolve(self, name: str, slots: int, cluster: str = "") -> ServedPool:
        """Return the pool called `name`, or the default one for `slots`; CLUSTER.NAME names one whether or not another
        cluster has such a pool. `cluster`: the one that serves it, where this is known. Raises Invalid with the
        existing names, Unavailable while a cluster that may have it does not answer."""
        served = self.pools()
        if name:
            own = [candidate for candidate in served if candidate.cluster.name == cluster]
            called = {each: candidate for candidate in reversed(served) for each in reversed(candidate.names)}
            called |= {candidate.pool.name: candidate for candidate in served}
            called |= {each: candidate for candidate in own for each in (candidate.plain, *candidate.names)}
            if candidate := called.get(name):
                return candidate
            self._refuse_while_unknown(f"Whether there is a resource pool {name!r} cannot be checked now")
            names = [candidate.pool.name for candidate in served]
            close = difflib.get_close_matches(name, names, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise Invalid(
                f"There is no resource pool {name!r}.{hint} Pools: {', '.join(names) or 'none can be listed now'}."
            )
        for candidate in served:
            wanted = candidate.cluster.default_compute if slots else candidate.cluster.default_aux
            if wanted and wanted in (candidate.plain, *candidate.names):
                return candidate
        defaults = [candidate for candidate in served if candidate.pool.is_default] or served
        if not defaults:
            self._refuse_while_unknown("No resource pool can be listed now")
            raise Invalid("There is no resource pool: the clusters of this master have none.")
        return defaults[0]

    def _refuse_while_unknown(self, what: str) -> None:
        """Raise Unavailable while a cluster whose pools were never listed may have the missing one."""
        unknown = [
            f"{name} does not answer ({problem.rstrip('.')})"
            for name, problem in self._problems.items()
            if name not in self._pools
        ]
        if unknown:
            raise Unavailable(f"{what}: {'; '.join(unknown)}. Try again later.")

    def _of(self, cluster: Cluster, fresh: float) -> list[ServedPool]:
        pools = self._listed(cluster, fresh)
        prefix = cluster.pool_prefix
        served = [ServedPool(cluster, replace(pool, name=prefix + pool.name), pool.name) for pool in pools]
        by_name = {pool.name: pool for pool in pools}
        for derived in cluster.derived:
            if base := by_name.get(derived.partition):
                pool = replace(
                    base, name=derived.name, is_default=False, description=derived.description or base.description
                )
                served.append(ServedPool(cluster, pool, derived.partition))
        return served

    def _listed(self, cluster: Cluster, fresh: float) -> Sequence[Pool]:
        with self._lock:
            known = self._pools.get(cluster.name)
            if known is not None and time.monotonic() - self._asked.get(cluster.name, 0.0) < fresh:
                return known
            self._asked[cluster.name] = time.monotonic()
        try:
            pools = cluster.dispatcher.pools()
        except DispatcherError as error:
            if self._problems.get(cluster.name) != str(error):
                log.warning("pools of %s cannot be listed: %s", cluster.name, error)
            self._problems[cluster.name] = str(error)
            return known or ()
        self._problems.pop(cluster.name, None)
        with self._lock:
            self._pools[cluster.name] = pools
        return pools
