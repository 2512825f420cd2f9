"""Requests for nodes by Determined 0.38's table for PBS, and the select statement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.pbs.resources import ChunkRequest, plan, select

CPU, GPU = SlotType.CPU, SlotType.CUDA


@pytest.mark.parametrize(
    ("slots", "slot_type", "gres", "per_node", "expected"),
    [
        (100, CPU, True, 16, ChunkRequest(chunks=7, cpus=16)),
        (100, CPU, True, None, ChunkRequest(chunks=100, cpus=1)),
        (100, GPU, True, None, ChunkRequest(chunks=100, gpus=1)),
        (100, GPU, True, 16, ChunkRequest(chunks=7, gpus=16)),
        (100, GPU, False, 16, ChunkRequest(chunks=7)),
        (100, GPU, False, None, ChunkRequest(chunks=100)),
        (16, GPU, True, None, ChunkRequest(chunks=16, gpus=1)),
        (16, GPU, False, None, ChunkRequest(chunks=16)),
        (0, GPU, True, 16, ChunkRequest(chunks=1, cpus=1)),
        (0, CPU, True, None, ChunkRequest(chunks=1, cpus=1)),
    ],
)
def test_golden_rows(slots: int, slot_type: SlotType, gres: bool, per_node: int | None, expected: ChunkRequest) -> None:
    assert plan(slots, slot_type, gres_supported=gres, slots_per_node=per_node) == expected


def test_a_single_node_gets_all_slots() -> None:
    assert plan(8, GPU, single_node=True, slots_per_node=2) == ChunkRequest(chunks=1, gpus=8)
    assert plan(8, CPU, single_node=True) == ChunkRequest(chunks=1, cpus=8)


def test_fewer_gpus_than_a_node_gives_are_not_rounded_up() -> None:
    assert plan(1, GPU, slots_per_node=4) == ChunkRequest(chunks=1, gpus=1)
    assert plan(1, CPU, slots_per_node=4) == ChunkRequest(chunks=1, cpus=4)  # as Determined has it


def test_node_size_determines_number_of_chunks() -> None:
    assert plan(8, GPU, node_size=4) == ChunkRequest(chunks=2, gpus=4)
    assert plan(6, GPU, node_size=4) == ChunkRequest(chunks=2, gpus=3)
    assert plan(7, GPU, node_size=4) == ChunkRequest(chunks=7, gpus=1)
    assert plan(2, CPU, node_size=64) == ChunkRequest(chunks=1, cpus=2)


@given(st.integers(1, 500), st.sampled_from([CPU, GPU]), st.integers(1, 64))
def test_the_nodes_share_evenly_and_fit(slots: int, slot_type: SlotType, size: int) -> None:
    request = plan(slots, slot_type, node_size=size)
    each = request.cpus if slot_type is CPU else request.gpus
    assert request.chunks * each == slots
    assert each <= size
    assert request.multi_node is (request.chunks > 1)


def test_select_statements() -> None:
    assert select(ChunkRequest(2, gpus=4), "ngpus", {}) == "2:ncpus=1:ngpus=4:mpiprocs=1"
    assert select(ChunkRequest(1, cpus=8), "ngpus", {}) == "1:ncpus=8:mpiprocs=1"
    assert select(ChunkRequest(7), "ngpus", {}) == "7:ncpus=1:mpiprocs=1"
    extra = {"ncpus": "16", "mem": "64gb"}
    assert select(ChunkRequest(2, gpus=4), "gpus", extra) == "2:ncpus=16:gpus=4:mpiprocs=1:mem=64gb"
