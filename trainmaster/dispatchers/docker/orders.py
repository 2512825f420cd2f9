"""Builds an agent's order for one node of a job. Pure."""

from __future__ import annotations

import json

from trainmaster.agent_protocol.messages import ContainerOrder
from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.docker import endings
from trainmaster.dispatchers.docker.job_record import JobRecord
from trainmaster.dispatchers.docker.options import DockerOptions


def order(
    record: JobRecord, number: int, options: DockerOptions, slot_type: SlotType | None, now: float
) -> ContainerOrder:
    """Return the order for node `number`. `slot_type`: of the agent's slots, if it has any."""
    rank, wanted = record.ranks[number], record.wanted
    return ContainerOrder(
        token=record.token,
        job_id=record.job_id,
        node_rank=number,
        num_nodes=len(record.ranks),
        slot_ids=rank.slot_ids,
        image=wanted.image,
        force_pull=wanted.force_pull,
        binds=wanted.binds,
        network_mode=wanted.network_mode or options.network_mode,
        shm_size=wanted.shm_size,
        devices=wanted.devices,
        add_capabilities=wanted.add_capabilities,
        drop_capabilities=wanted.drop_capabilities,
        root_capabilities=wanted.root_capabilities,
        user=wanted.user,
        python=options.python,
        environment=environment(record, number, slot_type),
        shared=wanted.shared,
        fresh=rank.started_at is None,
        deliver=endings.deliveries(record, now, options.cancel_grace, options.preemption_grace),
    )


def environment(record: JobRecord, number: int, slot_type: SlotType | None) -> dict[str, str]:
    """Return the variables in which the runtime expects a scheduler's facts."""
    rank = record.ranks[number]
    variables = {
        "TRAINMASTER_JOB_ID": record.job_id,
        "TRAINMASTER_NODE_RANK": str(number),
        "TRAINMASTER_NUM_NODES": str(len(record.ranks)),
        "TRAINMASTER_NODE_NAME": rank.agent_id,
        "TRAINMASTER_SLOT_IDS": json.dumps(list(rank.slot_ids)),
    }
    if slot_type is SlotType.CUDA:
        # The container has only its own GPUs, and counts them from 0.
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(rank.slot_ids))))
    elif slot_type is SlotType.ROCM:
        variables["ROCR_VISIBLE_DEVICES"] = ",".join(map(str, rank.slot_ids))
    return variables
