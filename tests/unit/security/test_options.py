"""A user's scheduler options try to get more than the slots that limits count."""

from __future__ import annotations

import pytest

from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.batch.requests import BadOption
from trainmaster.dispatchers.slurm import options
from trainmaster.dispatchers.slurm.resources import GpuDialect, check_gpus, plan


@pytest.mark.parametrize("option", ["--gpus-per-task=8", "--gpus-per-socket=a100:8", "--gpus-per-task=2080ti:4,3090:4"])
@pytest.mark.parametrize(("slots", "kind"), [(1, SlotType.CUDA), (0, SlotType.CUDA), (64, SlotType.CPU)])
def test_an_option_that_asks_for_more_gpus_than_slots_is_refused(option: str, slots: int, kind: SlotType) -> None:
    request = plan(slots, kind, GpuDialect.TRES, node_size=4)
    with pytest.raises(BadOption, match=r"asks for 8 GPUs on a node where the job has \d+ slots; set resources"):
        check_gpus(options.check([option]), request, slots, kind)


def test_option_that_matches_slots_is_accepted() -> None:
    request = plan(8, SlotType.CUDA, GpuDialect.TRES, node_size=4)
    for given in (["--gpus-per-task=4"], ["--gpus-per-task=a100:4"], ["--time=60"], []):
        check_gpus(options.check(given), request, 8, SlotType.CUDA)
