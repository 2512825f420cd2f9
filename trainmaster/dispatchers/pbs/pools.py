"""Converts queues to resource pools, and checks jobs against them before the submit. Pure.

The hosts of a queue are those whose virtual nodes serve it: nodes that are bound to a queue (attribute `queue`) serve
no other, partitions must agree, and a node must have what a queue adds to every chunk (`default_chunk.Qlist = gpu`).
A routing queue has the hosts of the execution queues that it leads to, directly or through other routing queues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.dispatchers.base import JobSpec, Pool, PoolNode, Problem, SlotType
from trainmaster.dispatchers.pbs.options import NodePlacement, PbsOptions
from trainmaster.dispatchers.pbs.parse import PrintedRecord, duration, integer, truth
from trainmaster.dispatchers.pbs.resources import ChunkRequest

# What sites call GPUs, beside the resource that the administrator named.
_LIKE_GPUS = re.compile(r"n?_?(gpus?|accelerators?|accels?)(_?count)?|accelerator_count|gres_gpus?", re.IGNORECASE)
# States in which a node accepts no jobs until it is repaired (pbs_node_attributes(7B)).
_AWAY = frozenset({"down", "offline", "stale", "state-unknown", "unresolvable", "maintenance", "sleep"})


@dataclass
class Host:
    """A machine: its virtual nodes together, because a chunk may use several of them."""

    name: str
    vnodes: int = 0
    cpus: int = 0
    cpus_used: int = 0
    gpus: int = 0
    gpus_used: int = 0
    exclusive: bool = True  # jobs get it whole, all of its virtual nodes
    offline: bool = False  # an administrator has taken some of it offline; its jobs keep running


@dataclass(frozen=True)
class Queue:
    """A queue with the hosts that serve it."""

    name: str
    slot_type: SlotType
    hosts: tuple[Host, ...]  # those that are up
    all_hosts: tuple[Host, ...]  # those that are down too: they may come back
    enabled: bool
    started: bool
    is_default: bool
    routed_only: bool = False
    max_walltime: int | None = None
    default_walltime: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)  # of one job: resources_max
    leads_to: tuple[Queue, ...] = ()  # the execution queues of a routing queue
    problems: tuple[Problem, ...] = ()  # with the GPUs of its hosts

    @property
    def _cpus(self) -> bool:
        return self.slot_type is SlotType.CPU

    def slots_of(self, host: Host) -> int:
        return host.cpus if self._cpus else host.gpus

    @property
    def node_size(self) -> int:
        """Slots of the largest host, whether or not it is up now."""
        return max((self.slots_of(host) for host in self.all_hosts), default=0)

    def pool(self, options: PbsOptions) -> Pool:
        up = {host.name for host in self.hosts}
        total = sum(self.slots_of(host) for host in self.hosts)
        used = sum(host.cpus_used if self._cpus else host.gpus_used for host in self.hosts)
        return Pool(
            name=self.name,
            slot_type=self.slot_type,
            slots_total=total,
            slots_used=min(total, used),
            nodes=len(self.hosts),
            slots_per_node=self.node_size,
            description=options.pool(self.name).description or "PBS-managed pool of resources",
            is_default=self.is_default,
            exclusive=bool(self.hosts) and all(host.exclusive for host in self.hosts),
            max_walltime=self.max_walltime,
            up=self.enabled and self.started and not self.routed_only and bool(self.hosts),
            members=tuple(self._member(host, host.name in up) for host in self.all_hosts),
            problems=() if options.pool(self.name).slot_type or options.slot_type else self.problems,
        )

    def _member(self, host: Host, up: bool) -> PoolNode:
        used = host.cpus_used if self._cpus else host.gpus_used
        total = self.slots_of(host)
        return PoolNode(host.name, total, min(total, used), enabled=up, draining=host.offline and used > 0)

    def complaints(self, spec: JobSpec, request: ChunkRequest, walltime: int | None, options: PbsOptions) -> list[str]:
        """Return why a job can never run in this queue."""
        complaints = []
        if self.routed_only:
            return [f"Queue {self.name} takes jobs only from another queue (from_route_only)."]
        complaints += self._complaints(spec, request, walltime, options)
        inner = [queue._complaints(spec, request, walltime, options) for queue in self.leads_to]
        # Which of them takes it is for PBS to say.
        return (
            complaints if complaints or not inner or not all(inner) else list(dict.fromkeys(each[0] for each in inner))
        )

    def _complaints(self, spec: JobSpec, request: ChunkRequest, walltime: int | None, options: PbsOptions) -> list[str]:
        complaints = []
        kind = "CPUs" if self._cpus else "GPUs"
        # If a site does not configure GPUs in PBS, none are listed, and nothing is known of them.
        size = 0 if self.problems and not self._cpus else self.node_size
        each = request.cpus if self._cpus else request.gpus
        if size and each > size:
            complaints.append(f"Pool {self.name} has no node with {each} {kind}; its largest has {size}.")
        elif self.all_hosts and request.chunks > self._places(options.place):
            complaints.append(
                f"The job needs {request.chunks} nodes, and pool {self.name} has {self._places(options.place)}."
            )
        total = sum(self.slots_of(host) for host in self.all_hosts)
        if size and spec.slots > total:
            complaints.append(f"The job asks for {spec.slots} slots, and pool {self.name} has {total} in all.")
        if walltime is not None and self.max_walltime is not None and walltime > self.max_walltime:
            complaints.append(
                f"The job asks for {walltime} s (-l walltime), and pool {self.name} allows {self.max_walltime} s."
            )
        asked = {"ncpus": request.cpus * request.chunks, options.gpu_resource: request.gpus * request.chunks}
        for name, wanted in {**asked, "nodect": request.chunks}.items():
            limit = self.limits.get(name)
            if limit is not None and wanted > limit:
                complaints.append(f"The job asks for {wanted} of {name}, and queue {self.name} allows {limit} at most.")
        return complaints

    def _places(self, place: NodePlacement) -> int:
        """Return how many chunks can be placed at most."""
        if place is NodePlacement.FREE:
            # If PBS does not know the slots, the CPUs count: every chunk needs one.
            return sum(self.slots_of(host) or host.cpus for host in self.all_hosts)
        if place is NodePlacement.VSCATTER:
            return sum(host.vnodes for host in self.all_hosts)
        return len(self.all_hosts)


def queues(
    listed: Sequence[PrintedRecord], nodes: Sequence[PrintedRecord], server: PrintedRecord | None, options: PbsOptions
) -> dict[str, Queue]:
    """Return the queues of a server that lead to nodes, in its order."""
    of_server = server or PrintedRecord("", {})
    execution = {
        record.name: _execution_queue(record, nodes, of_server, options)
        for record in listed
        if record.get("queue_type").lower().startswith("e")
    }
    routes = {record.name: record for record in listed if record.get("queue_type").lower().startswith("r")}
    queues = {}
    for record in listed:
        if record.name in execution:
            queues[record.name] = execution[record.name]
        elif reached := [execution[name] for name in _reached(record, routes, of_server) if name in execution]:
            queues[record.name] = _routing_queue(record, reached, listed, nodes, of_server, options)
    return queues


def routed(queues: Mapping[str, Queue]) -> dict[str, str]:
    """Return the routing queue through which jobs come into each queue that people cannot choose."""
    return {
        inner.name: queue.name
        for queue in reversed(list(queues.values()))
        for inner in queue.leads_to
        if inner.routed_only
    }


def _reached(record: PrintedRecord, routes: Mapping[str, PrintedRecord], server: PrintedRecord) -> Iterator[str]:
    """Yield the queues of this server that a routing queue leads to, each once: administrators may make circles. A
    job that another server takes cannot be followed there."""
    names, waiting = {record.name}, [record]
    while waiting:
        for word in waiting.pop(0).get("route_destinations").split(","):
            name, _, host = word.strip().partition("@")
            if not name or name in names or (host and _short(host) != _short(server.name)):
                continue
            names.add(name)
            if name in routes:
                waiting.append(routes[name])
            else:
                yield name


def _short(host: str) -> str:
    return host.partition(":")[0].partition(".")[0].lower()


def _routing_queue(
    record: PrintedRecord,
    reached: Sequence[Queue],
    listed: Sequence[PrintedRecord],
    nodes: Sequence[PrintedRecord],
    server: PrintedRecord,
    options: PbsOptions,
) -> Queue:
    """Return a routing queue that leads to the execution queues `reached`. Its own limits hold before theirs."""
    inner = {queue.name for queue in reached}
    open_ones = {queue.name for queue in reached if queue.enabled and queue.started}
    serving = {
        node.name: [queue.name for queue in listed if queue.name in inner and _serves(node, queue, nodes)]
        for node in nodes
    }
    up = [node for node in nodes if open_ones.intersection(serving[node.name]) and _is_up(node)]
    longest = [queue.max_walltime for queue in reached]
    # Which of them a job gets is not known before; one that leaves a little early continues in its next attempt.
    shortest = [queue.default_walltime for queue in reached if queue.default_walltime is not None]
    gpus = any(queue.slot_type is not SlotType.CPU for queue in reached)
    return Queue(
        name=record.name,
        slot_type=options.slots_are(record.name, gpus),
        hosts=_hosts(up, options.gpu_resource),
        all_hosts=_hosts([node for node in nodes if serving[node.name]], options.gpu_resource),
        enabled=truth(record.get("enabled")),
        started=truth(record.get("started")),
        is_default=_is_default(record, server),
        routed_only=truth(record.get("from_route_only")),
        max_walltime=duration(record.get("resources_max.walltime"))
        or (None if None in longest else max(filter(None, longest), default=None)),
        default_walltime=duration(record.get("resources_default.walltime")) or min(shortest, default=None),
        limits=_limits(record),
        leads_to=tuple(reached),
        problems=tuple(dict.fromkeys(problem for queue in reached for problem in queue.problems)),
    )


def _is_default(record: PrintedRecord, server: PrintedRecord) -> bool:
    return server.get("default_queue").partition("@")[0] == record.name


def _execution_queue(
    record: PrintedRecord, nodes: Sequence[PrintedRecord], server: PrintedRecord, options: PbsOptions
) -> Queue:
    serving = [node for node in nodes if _serves(node, record, nodes)]
    up = list(filter(_is_up, serving))
    problems = tuple(_gpu_problems(record.name, serving, options.gpu_resource))
    has_gpus = bool(problems) or any(_available(node, options.gpu_resource) for node in serving)
    return Queue(
        name=record.name,
        slot_type=options.slots_are(record.name, has_gpus),
        hosts=_hosts(up, options.gpu_resource),
        all_hosts=_hosts(serving, options.gpu_resource),
        enabled=truth(record.get("enabled")),
        started=truth(record.get("started")),
        is_default=_is_default(record, server),
        routed_only=truth(record.get("from_route_only")),
        max_walltime=_limit("resources_max.walltime", record, server),
        default_walltime=_limit("resources_default.walltime", record, server),
        limits=_limits(record),
        problems=problems,
    )


def _gpu_problems(queue: str, nodes: Sequence[PrintedRecord], gpu_resource: str) -> Iterator[Problem]:
    """Yield what PBS prints of GPUs and cannot be counted: jobs must not train on the processors of such nodes."""
    for node in nodes:
        text = node.get(f"resources_available.{gpu_resource}").strip()
        if text and integer(text) is None:
            yield Problem(
                f"The GPUs of node {node.name} in queue {queue} cannot be counted: PBS prints {gpu_resource}={text!r}.",
                f"Make {gpu_resource} a number there, or name the resource that counts GPUs in gpu_resource.",
            )
            return
    if any(node.get(f"resources_available.{gpu_resource}") for node in nodes):
        return
    for node in nodes:
        for name, text in _resources(node, "resources_available.").items():
            if _LIKE_GPUS.fullmatch(name) and integer(text):
                yield Problem(
                    f"Node {node.name} in queue {queue} has {name}={text}, and no {gpu_resource}.",
                    f"If {name} counts the GPUs, set gpu_resource: {name}; else set slot_type: cpu for the queue in "
                    "partition_overrides.",
                )
                return


def _is_up(node: PrintedRecord) -> bool:
    return not _words(node.get("state")) & _AWAY


def _serves(node: PrintedRecord, queue: PrintedRecord, nodes: Sequence[PrintedRecord]) -> bool:
    bound = node.get("queue")
    if bound:
        return bound == queue.name
    if any(other.get("queue") == queue.name for other in nodes):
        return False
    if node.get("partition") != queue.get("partition"):
        return False
    return all(
        value in node.get(f"resources_available.{name}").split(",")
        for name, value in _resources(queue, "default_chunk.").items()
        # A number is an amount that a chunk takes from a node; a word is a property that a node must have.
        if not value[:1].isdigit()
    )


def _hosts(nodes: Sequence[PrintedRecord], gpu_resource: str) -> tuple[Host, ...]:
    hosts: dict[str, Host] = {}
    for node in nodes:
        host = hosts.setdefault(_host_name(node), Host(_host_name(node)))
        host.vnodes += 1
        host.exclusive = host.exclusive and node.get("sharing").startswith(("default_excl", "force_excl"))
        host.offline = host.offline or "offline" in _words(node.get("state"))
        host.cpus += _available(node, "ncpus")
        host.gpus += _available(node, gpu_resource)
        exclusive = bool(_words(node.get("state")) & {"job-exclusive", "resv-exclusive"})
        host.cpus_used += _available(node, "ncpus") if exclusive else _assigned(node, "ncpus")
        host.gpus_used += _available(node, gpu_resource) if exclusive else _assigned(node, gpu_resource)
    return tuple(hosts.values())


def _host_name(node: PrintedRecord) -> str:
    return node.get("resources_available.host") or node.name


def _words(state: str) -> set[str]:
    return {word.strip().lower() for word in state.split(",")}


def _available(node: PrintedRecord, resource: str) -> int:
    return integer(node.get(f"resources_available.{resource}")) or 0


def _assigned(node: PrintedRecord, resource: str) -> int:
    return integer(node.get(f"resources_assigned.{resource}")) or 0


def _resources(record: PrintedRecord, prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in record.attributes.items() if name.startswith(prefix)}


def _limit(name: str, queue: PrintedRecord, server: PrintedRecord) -> int | None:
    """Return a time limit in seconds; the queue's takes precedence over the server's."""
    limits = (duration(record.get(name)) for record in (queue, server) if record.get(name))
    return next(limits, None)


def _limits(queue: PrintedRecord) -> dict[str, int]:
    limits = {name: integer(value) for name, value in _resources(queue, "resources_max.").items()}
    return {name: value for name, value in limits.items() if value is not None}
