"""Slots to nodes, GPUs and CPUs: the rows of Determined's own tests, then ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.slurm.resources import GpuDialect, NodeRequest, merge_gres, plan, sbatch_words

CPU, CUDA = SlotType.CPU, SlotType.CUDA
TRES, GRES, NONE = GpuDialect.TRES, GpuDialect.GRES, GpuDialect.NONE


@pytest.mark.parametrize(
    ("slots", "kind", "dialect", "each", "single", "nodes", "total", "on_each"),
    [
        (100, CPU, TRES, 32, False, 4, 0, 32),
        (100, CPU, TRES, None, False, 100, 0, 0),
        (100, CUDA, TRES, 32, False, 4, 100, 32),
        (100, CUDA, TRES, None, False, 100, 100, 0),
        (100, CUDA, GRES, 32, False, 4, 0, 32),
        (100, CUDA, NONE, 32, False, 4, 0, 0),
        (100, CUDA, NONE, None, False, 100, 0, 0),
        (100, CUDA, TRES, 32, True, 1, 100, 100),
        (16, CUDA, TRES, None, False, 16, 16, 0),
        (16, CUDA, GRES, None, False, 16, 0, 1),
        (16, CUDA, NONE, None, False, 16, 0, 0),
    ],
)
def test_golden_rows(
    slots: int,
    kind: SlotType,
    dialect: GpuDialect,
    each: int | None,
    single: bool,
    nodes: int,
    total: int,
    on_each: int,
) -> None:
    request = plan(slots, kind, dialect, slots_per_node=each, single_node=single)
    assert (request.nodes, request.gpus_total, request.slots_each) == (nodes, total, on_each)
    assert request.cores_each == ((each or 1) if kind is CPU else 0)


@pytest.mark.parametrize("dialect", [TRES, GRES])
@given(slots=st.integers(1, 300), each=st.none() | st.integers(1, 40), size=st.none() | st.integers(1, 40))
def test_no_gpu_is_reserved_that_was_not_asked_for(
    dialect: GpuDialect, slots: int, each: int | None, size: int | None
) -> None:
    """But where the number does not fit the nodes that the user wants: they are told (`BatchDispatcher.remarks`)."""
    request = plan(slots, CUDA, dialect, slots_per_node=each, node_size=size)
    reserved = request.gpus_total if request.spread else request.nodes * request.slots_each
    assert reserved == slots or (each is not None and each < slots and slots % each and reserved - slots < each)
    assert reserved >= slots


def test_no_slots_is_one_core() -> None:
    assert plan(0, CUDA, TRES) == NodeRequest(nodes=1, cores_each=1)


@pytest.mark.parametrize(
    ("slots", "size", "nodes", "on_each"), [(4, 2, 2, 2), (1, 2, 1, 1), (3, 2, 3, 1), (6, 4, 2, 3), (8, 4, 2, 4)]
)
def test_a_known_node_size_gives_an_even_compact_spread(slots: int, size: int, nodes: int, on_each: int) -> None:
    for kind, dialect in ((CUDA, TRES), (CUDA, GRES), (CPU, NONE)):
        request = plan(slots, kind, dialect, node_size=size)
        assert (request.nodes, request.slots_each) == (nodes, on_each)
        assert not request.spread


SPREAD = plan(4, CUDA, TRES)
EIGHT_CPUS = plan(8, CPU, TRES, slots_per_node=4)
FOUR_ON_TWO = NodeRequest(nodes=2, gpus_total=4, slots_each=2)


@pytest.mark.parametrize(
    ("request_", "kind", "dialect", "gpu_type", "words"),
    [
        (FOUR_ON_TWO, CUDA, TRES, None, "--nodes=2 --ntasks=2 --ntasks-per-node=1 --gpus-per-node=2"),
        (FOUR_ON_TWO, CUDA, TRES, "a100", "--nodes=2 --ntasks=2 --ntasks-per-node=1 --gpus-per-node=a100:2"),
        (FOUR_ON_TWO, CUDA, GRES, "a100", "--nodes=2 --ntasks=2 --ntasks-per-node=1 --gres=gpu:a100:2"),
        (FOUR_ON_TWO, CUDA, NONE, "a100", "--nodes=2 --ntasks=2 --ntasks-per-node=1"),
        (SPREAD, CUDA, TRES, None, "--nodes=1-4 --ntasks-per-node=1 --gpus=4"),
        (EIGHT_CPUS, CPU, TRES, None, "--nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=4"),
        (plan(0, CUDA, TRES), CUDA, TRES, None, "--nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=1"),
    ],
)
def test_the_three_dialects(
    request_: NodeRequest, kind: SlotType, dialect: GpuDialect, gpu_type: str | None, words: str
) -> None:
    assert sbatch_words(request_, kind, dialect, gpu_type) == words.split()


def test_other_generic_resources_join_ours() -> None:
    assert merge_gres(["--nodes=1", "--gres=gpu:2"], "shard:1") == ["--nodes=1", "--gres=gpu:2,shard:1"]
    assert merge_gres(["--nodes=1"], "shard:1") == ["--nodes=1", "--gres=shard:1"]
    assert merge_gres(["--nodes=1"], None) == ["--nodes=1"]


@pytest.mark.parametrize(
    ("tres", "gres", "dialect"), [(True, True, TRES), (False, True, GRES), (True, False, NONE), (False, False, NONE)]
)
def test_determineds_switches(tres: bool, gres: bool, dialect: GpuDialect) -> None:
    assert GpuDialect.of(tres_supported=tres, gres_supported=gres) is dialect
