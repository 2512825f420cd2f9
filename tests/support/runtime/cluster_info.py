"""What core knows about a job, made by hand."""

from __future__ import annotations

from typing import Any

from trainmaster.core.info import ClusterInfo, TrialInfo


def job(**hparams: Any) -> ClusterInfo:
    """The job of a trial with these hyperparameters."""
    trial = TrialInfo(
        trial_id=7, experiment_id=3, trial_seed=42, hparams=hparams, _config={}, steps_completed=0, trial_run_id=1
    )
    return ClusterInfo(
        master_url="http://127.0.0.1:1",
        cluster_id="c",
        agent_id="n0",
        slot_ids=[],
        task_id="3.7",
        allocation_id="3.7.1",
        session_token="t",
        task_type="TRIAL",
        trial_info=trial,
    )
