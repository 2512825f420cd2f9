"""The text of slurm.conf and its companions for the test cluster (Slurm 22.05 and later)."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.cluster.layout import CPUS_PER_NODE, GPUS_PER_NODE, MEMORY_PER_CPU_MB, MEMORY_PER_NODE_MB, Layout

MIN_JOB_AGE = 300  # seconds, as Slurm has it
GPU_DEVICES = tuple(f"/dev/fakegpu{number}" for number in range(GPUS_PER_NODE))


@dataclass(frozen=True)
class Profile:
    """Settings that differ between sites. The default profile has no accounting, no preemption and three partitions."""

    settings: Mapping[str, str | None] = field(default_factory=dict)  # in place of the default's; None: left out
    lines: tuple[str, ...] = ()  # that stand beside the default's; `{nodes}` stands for all nodes
    constrains_memory: bool = True  # where the machine can


def slurm_conf(layout: Layout, min_job_age: int, profile: Profile = Profile()) -> str:
    """`min_job_age`: seconds for which the controller remembers an ended job (Slurm wants at least 2)."""
    host = socket.gethostname()
    nodes = ",".join(layout.nodes)
    lines = [
        "ClusterName=trainmaster",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={layout.controller_port}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        f"StateSaveLocation={layout.run}/state",
        f"SlurmdSpoolDir={layout.run}/spool/%n",
        f"SlurmctldPidFile={layout.run}/pid/own-slurmctld.pid",
        f"SlurmdPidFile={layout.run}/pid/own-slurmd-%n.pid",
        f"SlurmctldLogFile={layout.run}/log/slurmctld.daemon.log",
        f"SlurmdLogFile={layout.run}/log/slurmd-%n.daemon.log",
        # Without it slurmd's own look at the machine makes the nodes INVALID.
        "SlurmdParameters=config_overrides",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/cgroup",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=1",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        f"DefMemPerCPU={MEMORY_PER_CPU_MB}",
        "GresTypes=gpu",
        "AccountingStorageType=accounting_storage/none",
        "JobCompType=jobcomp/none",
        "MpiDefault=pmi2",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1",
        f"MinJobAge={min_job_age}",
        "MessageTimeout=5",
        "SlurmdTimeout=10",
        "KillWait=5",
        "ReturnToService=2",
        "PropagateResourceLimits=NONE",
        *(
            f"NodeName={node} NodeAddr=127.0.0.1 NodeHostName={host} Port={layout.node_port(node)} "
            f"CPUs={CPUS_PER_NODE} RealMemory={MEMORY_PER_NODE_MB} Gres=gpu:{GPUS_PER_NODE} State=UNKNOWN"
            for node in layout.nodes
        ),
        f"PartitionName=main Nodes={nodes} Default=YES MaxTime=1-00:00:00 DefaultTime=1:00:00 State=UP",
        f"PartitionName=short Nodes={nodes} MaxTime=2 DefaultTime=2 State=UP",
        f"PartitionName=small Nodes={layout.nodes[-1]} MaxTime=1-00:00:00 DefaultTime=1:00:00 State=UP",
        *(line.format(nodes=nodes) for line in profile.lines),
    ]
    kept = [line for line in lines if line.partition("=")[0] not in profile.settings]
    added = [f"{key}={value}" for key, value in profile.settings.items() if value is not None]
    return "\n".join([*kept, *added]) + "\n"


def gres_conf(layout: Layout) -> str:
    first, last = 0, GPUS_PER_NODE - 1
    return "".join(f"NodeName={node} Name=gpu File=/dev/fakegpu[{first}-{last}]\n" for node in layout.nodes)


def cgroup_conf(constrain_memory: bool) -> str:
    if not constrain_memory:
        return "CgroupPlugin=disabled\n"
    return "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\nConstrainCores=no\nConstrainDevices=no\n"
