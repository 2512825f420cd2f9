"""A test cluster with preemption: urgent jobs take the resources of others."""

from __future__ import annotations

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.configuration import Profile
from tests.support.cluster.layout import Layout

OFFSET = 20  # of its ports from those of the first cluster
GRACE = 20  # seconds that a job has from the warning to the end


class PreemptingCluster(Cluster):
    """Two nodes in three further partitions: jobs in `urgent` take the place of those in `requeued` and `cancelled`,
    which Slurm puts back into the queue, where they may be, or cancels. `sudden` gives no grace. As at most sites,
    Slurm tells only the steps of a job, not its batch script, that it is preempted (no `preempt_send_user_signal`)."""

    def __init__(self, layout: Layout | None = None) -> None:
        layout = (layout or Layout.from_environment()).beside("preempting", OFFSET)
        settings = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
        common = "Nodes={nodes} MaxTime=1-00:00:00 DefaultTime=1:00:00 State=UP"
        super().__init__(
            layout,
            Profile(
                settings,
                (
                    f"PartitionName=requeued {common} PriorityTier=1 PreemptMode=REQUEUE GraceTime={GRACE}",
                    f"PartitionName=cancelled {common} PriorityTier=1 PreemptMode=CANCEL GraceTime={GRACE}",
                    f"PartitionName=sudden {common} PriorityTier=1 PreemptMode=REQUEUE GraceTime=0",
                    f"PartitionName=urgent {common} PriorityTier=10 PreemptMode=OFF",
                ),
            ),
        )
