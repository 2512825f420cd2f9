"""Queues as resource pools, and checks of jobs against them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.pbs.recorded import MARK, recorded
from trainmaster.dispatchers.base import JobSpec, PoolNode, SlotType
from trainmaster.dispatchers.pbs.options import NodePlacement, PbsOptions
from trainmaster.dispatchers.pbs.parse import PrintedRecord, dsv_records, json_records
from trainmaster.dispatchers.pbs.pools import Queue, queues, routed
from trainmaster.dispatchers.pbs.resources import ChunkRequest

OPTIONS = PbsOptions(container_run_type="none")


def node(name: str, state: str = "free", **more: str) -> PrintedRecord:
    attributes = {
        "state": state,
        "resources_available.host": name,
        "resources_available.ncpus": "8",
        "resources_available.ngpus": "4",
        "resources_assigned.ncpus": "3",
        "resources_assigned.ngpus": "1",
    }
    return PrintedRecord(name, attributes | {key.replace("__", "."): value for key, value in more.items()})


def queue(name: str = "workq", **more: str) -> PrintedRecord:
    attributes = {"queue_type": "Execution", "enabled": "True", "started": "True"}
    return PrintedRecord(name, attributes | {key.replace("__", "."): value for key, value in more.items()})


def made(
    *nodes: PrintedRecord, options: PbsOptions = OPTIONS, server: dict[str, str] | None = None, **more: str
) -> Queue:
    found = queues([queue(**more)], list(nodes), PrintedRecord("s", server or {}), options)
    return found["workq"]


def test_a_real_server() -> None:
    listed, _ = dsv_records(recorded("queues-dsv.out"), MARK)
    nodes, _ = dsv_records(recorded("nodes-dsv.out"), MARK)
    server, _ = dsv_records(recorded("server-dsv.out"), MARK)
    pool = queues(listed, nodes, server[0], OPTIONS)["workq"].pool(OPTIONS)
    assert (pool.slot_type, pool.slots_total, pool.slots_used) == (SlotType.CUDA, 4, 2)
    assert (pool.nodes, pool.slots_per_node, pool.is_default, pool.up) == (2, 2, True, True)


def test_limits_and_closed_queues_of_a_real_server() -> None:
    listed, _ = json_records(recorded("qstat-Q-json.out"))
    nodes, _ = json_records(recorded("pbsnodes-json.out"))
    found = queues(listed, nodes, None, OPTIONS)
    assert found["gpu"].max_walltime == 172800
    assert found["gpu"].limits == {"ngpus": 2}
    assert [name for name, one in found.items() if not one.pool(OPTIONS).up] == ["off"]


def test_the_nodes_of_a_queue_are_its_members() -> None:
    """Down ones too; where an administrator has put one aside, what runs there goes on."""
    pool = made(node("a"), node("b", "down", resources_assigned__ngpus="0"), node("c", "offline")).pool(OPTIONS)
    assert pool.members == (
        PoolNode("a", 4, 1),
        PoolNode("b", 4, 0, enabled=False),
        PoolNode("c", 4, 1, enabled=False, draining=True),
    )


def test_unavailable_node_has_no_slots() -> None:
    for state in ("down", "offline", "job-busy,offline", "state-unknown,down", "stale", "maintenance"):
        pool = made(node("a"), node("b", state)).pool(OPTIONS)
        assert (pool.nodes, pool.slots_total) == (1, 4), state
    for state in ("free", "job-busy", "job-exclusive", "resv-exclusive", "busy"):
        assert made(node("a", state)).pool(OPTIONS).slots_total == 4, state


def test_a_node_that_one_job_has_for_itself_is_full() -> None:
    assert made(node("a", "job-exclusive")).pool(OPTIONS).slots_used == 4


def test_without_nodes_a_queue_is_not_up() -> None:
    assert not made(node("a", "down")).pool(OPTIONS).up
    assert not made(node("a"), enabled="False").pool(OPTIONS).up
    assert not made(node("a"), started="False").pool(OPTIONS).up


def test_routing_queue_without_local_destination_is_no_pool() -> None:
    nowhere = [
        queue("route", queue_type="Route"),
        queue("far", queue_type="Route", route_destinations="big@other.site"),
        queue("circle", queue_type="Route", route_destinations="circle"),
    ]
    assert queues(nowhere, [node("a")], PrintedRecord("s", {}), OPTIONS) == {}


ROUTED = {"from_route_only": "True"}
SITE = [
    queue("prod", queue_type="Route", route_destinations="small,large"),
    queue("all", queue_type="Route", route_destinations="prod,debug@s,big@other.site,all"),
    queue("small", **ROUTED, resources_max__ngpus="2", resources_max__walltime="4:00:00"),
    queue("large", **ROUTED, resources_max__walltime="24:00:00", resources_default__walltime="1:00:00"),
    queue("debug"),
]


def test_routing_queue_is_pool_of_its_destination_nodes() -> None:
    nodes = [node("a", queue="small"), node("b", queue="large"), node("c", queue="debug"), node("d", "down")]
    found = queues(SITE, nodes, PrintedRecord("s.site.org", {"default_queue": "prod"}), OPTIONS)
    prod, everything = found["prod"].pool(OPTIONS), found["all"].pool(OPTIONS)
    assert [member.name for member in prod.members] == ["a", "b"]
    assert (prod.slot_type, prod.slots_total, prod.is_default, prod.up) == (SlotType.CUDA, 8, True, True)
    assert [member.name for member in everything.members] == ["a", "b", "c"]
    assert (prod.max_walltime, found["prod"].default_walltime) == (86400, 3600)
    assert everything.max_walltime is None
    assert routed(found) == {"small": "prod", "large": "prod"}


def test_nodes_that_two_queues_share_count_once() -> None:
    prod = queues(SITE, [node("a"), node("b", "offline")], PrintedRecord("s", {}), OPTIONS)["prod"].pool(OPTIONS)
    assert (prod.slots_total, [member.name for member in prod.members]) == (4, ["a", "b"])


def test_routing_queue_takes_what_one_of_its_queues_takes() -> None:
    prod = queues(SITE, [node("a"), node("b")], PrintedRecord("s", {}), OPTIONS)["prod"]
    four = ChunkRequest(1, gpus=4)
    assert prod.complaints(spec(slots=4), four, 7200, OPTIONS) == []
    assert prod.complaints(spec(slots=4), four, 200_000, OPTIONS) == [
        "The job asks for 200000 s (-l walltime), and pool prod allows 86400 s."
    ]
    closed = [replace(one, attributes={**one.attributes, "resources_max.ngpus": "2"}) for one in SITE[:4]]
    prod = queues(closed, [node("a")], PrintedRecord("s", {}), OPTIONS)["prod"]
    assert prod.complaints(spec(slots=4), four, 7200, OPTIONS) == [
        "The job asks for 4 of ngpus, and queue prod allows 2 at most."
    ]


def test_routing_queue_to_closed_queues_is_down() -> None:
    shut = [replace(one, attributes={**one.attributes, "enabled": "False"}) for one in SITE[2:4]]
    assert not queues([SITE[0], *shut], [node("a")], None, OPTIONS)["prod"].pool(OPTIONS).up


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"resources_available__ngpus": "a100,a100"}, "PBS prints ngpus='a100,a100'"),
        ({"resources_available__ngpus": "", "resources_available__gpus": "4"}, "has gpus=4, and no ngpus"),
        ({"resources_available__ngpus": "", "resources_available__naccelerators": "2"}, "has naccelerators=2"),
    ],
)
def test_gpus_that_cannot_be_counted_are_never_taken_for_none(attributes: dict[str, str], words: str) -> None:
    pool = made(node("a", **attributes)).pool(OPTIONS)
    assert pool.slot_type is SlotType.CUDA
    (problem,) = pool.problems
    assert words in problem.text
    chosen = PbsOptions(container_run_type="none", slot_type="cpu")  # type: ignore[arg-type]
    assert made(node("a", **attributes), options=chosen).pool(chosen).problems == ()


def test_virtual_nodes_of_a_host_count_together() -> None:
    one = made(node("a[0]", resources_available__host="a"), node("a[1]", resources_available__host="a"))
    assert (len(one.hosts), one.node_size) == (1, 8)


def test_which_nodes_serve_a_queue() -> None:
    bound = node("bound", queue="special")
    found = queues([queue("workq"), queue("special")], [node("a"), bound], None, OPTIONS)
    assert [host.name for host in found["workq"].hosts] == ["a"]
    assert [host.name for host in found["special"].hosts] == ["bound"]
    listed = made(
        node("a", resources_available__Qlist="gpu,big"),
        node("b", resources_available__Qlist="small"),
        node("c"),
        default_chunk__Qlist="gpu",
        default_chunk__ncpus="1",
    )
    assert [host.name for host in listed.hosts] == ["a"]
    assert [h.name for h in made(node("a", partition="p1"), node("b"), partition="p1").hosts] == ["a"]


def test_slots_are_cpus_where_there_are_no_gpus() -> None:
    bare = node("a", resources_available__ngpus="0", resources_assigned__ngpus="0")
    pool = made(bare).pool(OPTIONS)
    assert (pool.slot_type, pool.slots_total, pool.slots_used) == (SlotType.CPU, 8, 3)
    told = PbsOptions(partition_overrides={"WORKQ": {"slot_type": "cpu"}})  # type: ignore[dict-item]
    assert made(node("a"), options=told).pool(told).slots_total == 8


def test_the_sites_own_name_for_gpus() -> None:
    options = PbsOptions(gpu_resource="accelerators")
    one = made(node("a", resources_available__accelerators="2"), options=options)
    assert one.pool(options).slots_total == 2


def test_the_servers_limits_hold_where_the_queue_has_none() -> None:
    server = {"resources_max.walltime": "10:00:00", "resources_default.walltime": "01:00:00", "default_queue": "workq"}
    one = made(node("a"), server=server)
    assert (one.max_walltime, one.default_walltime, one.is_default) == (36000, 3600, True)
    assert made(node("a"), server=server, resources_max__walltime="00:10:00").max_walltime == 600


def spec(**more: Any) -> JobSpec:
    return JobSpec(token="det-1", allocation_id="1.1.1", pool="workq", slot_type=SlotType.CUDA, **more)


@pytest.mark.parametrize(
    ("slots", "request_", "walltime", "words"),
    [
        (8, ChunkRequest(1, gpus=8), None, "no node with 8 GPUs; its largest has 4"),
        (12, ChunkRequest(3, gpus=4), None, "needs 3 nodes, and pool workq has 2"),
        (12, ChunkRequest(3, gpus=4), None, "asks for 12 slots, and pool workq has 8 in all"),
        (4, ChunkRequest(1, gpus=4), 7200, "7200 s (-l walltime), and pool workq allows 3600 s"),
        (4, ChunkRequest(1, gpus=4), None, "4 of ngpus, and queue workq allows 2 at most"),
    ],
)
def test_unfulfillable_requests_are_named(slots: int, request_: ChunkRequest, walltime: int | None, words: str) -> None:
    one = made(node("a"), node("b"), resources_max__walltime="01:00:00", resources_max__ngpus="2")
    complaints = one.complaints(spec(slots=slots), request_, walltime, OPTIONS)
    assert any(words in sentence for sentence in complaints), complaints


def test_nodes_that_are_down_are_not_held_against_a_job() -> None:
    one = made(node("a"), node("b", "down"))
    assert one.complaints(spec(slots=4), ChunkRequest(2, gpus=2), None, OPTIONS) == []
    assert one.complaints(spec(slots=8), ChunkRequest(2, gpus=4), None, OPTIONS) == []
    free = PbsOptions(place=NodePlacement.FREE)
    assert one.complaints(spec(slots=8), ChunkRequest(8, gpus=1), None, free) == []
    untold = PbsOptions(place=NodePlacement.FREE, slot_type=SlotType.CUDA, gres_supported=False)
    bare = node("a", resources_available__ngpus="0", resources_assigned__ngpus="0")
    assert made(bare, options=untold).complaints(spec(slots=4), ChunkRequest(4), None, untold) == []
    large = node("large", "offline", resources_available__ngpus="8")
    assert made(node("a"), large).complaints(spec(slots=8), ChunkRequest(1, gpus=8), None, OPTIONS) == []
    assert made(large).pool(OPTIONS).slots_per_node == 8


def test_nodes_share_host_if_placement_is_free() -> None:
    free = PbsOptions(place=NodePlacement.FREE)
    assert made(node("a")).complaints(spec(slots=4), ChunkRequest(2, gpus=2), None, free) == []
    assert made(node("a")).complaints(spec(slots=4), ChunkRequest(2, gpus=2), None, OPTIONS)


def test_a_queue_that_only_takes_routed_jobs() -> None:
    one = made(node("a"), from_route_only="True")
    assert not one.pool(OPTIONS).up
    assert "from_route_only" in one.complaints(spec(slots=1), ChunkRequest(1, gpus=1), None, OPTIONS)[0]


@pytest.mark.parametrize(
    ("sharing", "exclusive"),
    [
        (("default_shared", "default_excl"), False),
        (("default_excl", "force_exclhost"), True),
        (("ignore_excl",) * 2, False),
        (("", ""), False),
    ],
)
def test_queue_with_one_job_per_host_is_exclusive(sharing: tuple[str, str], exclusive: bool) -> None:
    nodes = [node(f"n{number}", sharing=one) for number, one in enumerate(sharing)]
    assert made(*nodes).pool(OPTIONS).exclusive is exclusive
