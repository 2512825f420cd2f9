"""`core.init()`: the contexts through which a training reports, checkpoints and is preempted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Union

from trainmaster.core.checkpoint import CheckpointContext
from trainmaster.core.distributed import DistributedContext, single
from trainmaster.core.info import ClusterInfo, RuntimeInfo, get_cluster_info
from trainmaster.core.job_storage import store_of
from trainmaster.core.preempt import PreemptContext, PreemptMode
from trainmaster.core.profiler import ProfilerContext
from trainmaster.core.reports import Reports
from trainmaster.core.searcher import SearcherContext
from trainmaster.core.storage import Storage, open_storage
from trainmaster.core.tensorboard import TensorboardFiles, TensorboardMode
from trainmaster.core.train import TrainContext
from trainmaster.runtime.errors import MasterError
from trainmaster.runtime.master import MasterCalls

if TYPE_CHECKING:
    from trainmaster.core.event_store import EventStore

logger = logging.getLogger("trainmaster.core")

_ALERT_LEVELS = ("debug", "info", "warn", "error")


class Context:
    """The contexts of a training: `train`, `checkpoint`, `preempt`, `searcher`, `distributed`, `profiler`, `info`."""

    def __init__(
        self,
        *,
        train: TrainContext,
        checkpoint: CheckpointContext,
        preempt: PreemptContext,
        searcher: SearcherContext,
        distributed: DistributedContext,
        profiler: ProfilerContext,
        info: Optional[ClusterInfo] = None,
        reports: Optional[Reports] = None,
        master: Optional[MasterCalls] = None,
        tensorboard: Optional[TensorboardFiles] = None,
    ) -> None:
        """`tensorboard` is given when its files are to be copied at the end."""
        self.train = train
        self.checkpoint = checkpoint
        self.preempt = preempt
        self.searcher = searcher
        self.distributed = distributed
        self.profiler = profiler
        self.info = info
        self._reports = reports
        self._master = master
        self._tensorboard = tensorboard

    def alert(
        self, title: Optional[str] = None, description: Optional[str] = None, level: Optional[str] = "info"
    ) -> None:
        """Send a message to the experiment's custom webhooks. Only the chief sends; a master that is away is only a
        warning.

        Args:
            title: Of the message.
            description: Its text.
            level: "debug", "info", "warn" or "error".

        Raises:
            ValueError: `level` is another word.
        """
        if level not in _ALERT_LEVELS:
            raise ValueError("the level of an alert is one of %s, not %r" % (", ".join(_ALERT_LEVELS), level))
        if self._master is None or self.info is None or self.distributed.rank != 0:
            return
        trial = self.info.trial
        body = {
            "experimentId": trial.experiment_id,
            "trialId": trial.trial_id,
            "data": {"title": title, "description": description, "level": level},
        }
        try:
            self._master.call("POST", "/api/v1/webhooks/custom", body)
        except MasterError as error:
            logger.warning("the alert %r was not sent: %s", title, error)

    def start(self) -> None:
        """Start the contexts. `with` does this."""
        self.preempt.start()

    def close(self, *_: object) -> None:
        """Close the contexts. `with` does this. The runtime sends what was reported after this process has ended."""
        self.preempt.close()
        self.profiler.off()
        try:
            self.checkpoint.wait()
        finally:
            if self._tensorboard is not None:
                self._tensorboard.end()
            if self._reports is not None:
                self._reports.close()
            if self._master is not None:
                self._master.close()

    def __enter__(self) -> Context:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close(*exception)


def init(
    *,
    distributed: Optional[DistributedContext] = None,
    checkpoint_storage: Union[str, Mapping[str, Any], None] = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> Context:
    """Create the contexts of this training, for use in a `with` statement.

    In a job they report to the master. Outside of one the same script runs with them on a laptop: nothing is reported.

    Args:
        distributed: Connects the ranks where several processes train together; required on several nodes.
        checkpoint_storage: A folder, or a section like the experiment's `checkpoint_storage`. Default: the
            experiment's own in a job, `~/.local/share/determined` outside of one.
        preempt_mode: Which ranks check for preemption requests.
        tensorboard_mode: Whether TensorBoard's files are copied to the storage automatically.

    Returns:
        The context; leaving the `with` block closes it.

    Raises:
        ValueError: The trial runs on several nodes, and `distributed` is missing.
        RuntimeError: The job was not started by trainmaster.
        CheckpointError: The checkpoint storage is of a kind that core cannot write.
    """
    info = get_cluster_info()
    if info is None:
        return _local(distributed, checkpoint_storage, preempt_mode)
    if info.runtime_info is None:
        raise RuntimeError(
            "this job was not started by trainmaster's runtime (no info/runtime.json in its run folder): use the "
            "`determined` package of its own master"
        )
    if info.task_type != "TRIAL":  # there is no experiment to report to; it can be paused all the same
        return _local(distributed, checkpoint_storage, preempt_mode, info.runtime_info.run_dir, info)
    return _in_job(info, info.runtime_info, distributed, checkpoint_storage, preempt_mode, tensorboard_mode)


def _in_job(
    info: ClusterInfo,
    runtime: RuntimeInfo,
    distributed: Optional[DistributedContext],
    checkpoint_storage: Union[str, Mapping[str, Any], None],
    preempt_mode: PreemptMode,
    tensorboard_mode: TensorboardMode,
) -> Context:
    trial = info.trial
    if distributed is None:
        if len(info.container_addrs) > 1:
            raise ValueError(
                "this trial runs on %d nodes: pass distributed=, for example "
                "core.DistributedContext.from_torch_distributed()" % len(info.container_addrs)
            )
        distributed = single()
    master = MasterCalls(
        info.master_url, info.session_token, url_file=runtime.master_url_file, url_owner=runtime.master_url_owner
    )
    reports = Reports(runtime.spool, runtime.run_dir, runtime.limits) if distributed.rank == 0 else None
    storage = open_storage(checkpoint_storage or runtime.checkpoint_storage or None, store_of(info, master))
    tensorboard = TensorboardFiles(
        runtime.run_dir / ("tensorboard-%d" % distributed.rank),
        _tensorboard_target(storage, info, master),
        distributed.rank,
        () if storage.in_store else _shared_with_others(storage, info),
    )
    auto = TensorboardMode(tensorboard_mode) is TensorboardMode.AUTO
    if auto and storage.in_store:
        tensorboard.follow()
    preempt = PreemptContext(distributed, PreemptMode(preempt_mode), runtime.run_dir, reports)
    return Context(
        train=TrainContext(distributed, tensorboard, reports, master, trial),
        checkpoint=CheckpointContext(
            distributed, storage, reports, master, tensorboard.upload_quietly if auto else _nothing
        ),
        preempt=preempt,
        searcher=SearcherContext(trial._config.get("searcher") or {}, distributed, preempt, reports),
        distributed=distributed,
        profiler=ProfilerContext(info.agent_id, reports),
        info=info,
        reports=reports,
        master=master,
        tensorboard=tensorboard if auto else None,
    )


def local() -> Context:
    """Create contexts that report nothing, in a job as well: for code that trains nothing."""
    return _local(None, None, PreemptMode.WorkersAskChief)


def _local(
    distributed: Optional[DistributedContext],
    checkpoint_storage: Union[str, Mapping[str, Any], None],
    preempt_mode: PreemptMode,
    run_dir: Optional[Path] = None,
    info: Optional[ClusterInfo] = None,
) -> Context:
    import tempfile  # not needed in jobs

    distributed = distributed or single()
    preempt = PreemptContext(distributed, PreemptMode(preempt_mode), run_dir)
    tensorboard = TensorboardFiles(Path(tempfile.gettempdir()) / "tensorboard", None, distributed.rank)
    return Context(
        train=TrainContext(distributed, tensorboard),
        checkpoint=CheckpointContext(distributed, open_storage(checkpoint_storage)),
        preempt=preempt,
        # As in Determined: one unit of whatever the script counts.
        searcher=SearcherContext({"max_length": 1}, distributed, preempt),
        distributed=distributed,
        profiler=ProfilerContext("", None),
        info=info,
    )


def _tensorboard_target(storage: Storage, info: ClusterInfo, master: MasterCalls) -> Union[Path, EventStore, None]:
    trial = info.trial
    if storage.in_store:
        from trainmaster.core.event_store import EventStore  # most trainings keep their files in folders

        return EventStore(master, info.allocation_id)
    return _shared_with_others(storage, info)[-1] / str(trial.experiment_id) / "trial" / str(trial.trial_id)


def _shared_with_others(storage: Storage, info: ClusterInfo) -> List[Path]:
    """Return the folders of event files that trainings of all accounts use, each in the one before."""
    paths = [storage.root]
    for name in (info.cluster_id, "tensorboard", "experiment"):
        paths.append(paths[-1] / name)
    return paths


def _nothing() -> None:
    return
