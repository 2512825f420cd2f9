"""`Session`: what the callback of a framework needs of a job, and nothing at all outside of one.

The doors for frameworks (`trainmaster.transformers`, `.lightning`, `.keras`, `.accelerate`, `.pytorch`) turn the events
of their framework into these calls. All ranks make the same calls in the same order; only the chief reports.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Optional, Set, Tuple

from trainmaster.core.context import Context, init
from trainmaster.core.distributed import DistributedContext
from trainmaster.core.errors import CheckpointError
from trainmaster.core.file_tree import list_files
from trainmaster.core.info import ClusterInfo, get_cluster_info
from trainmaster.core.job_storage import storage_of_job

logger = logging.getLogger("trainmaster.core")

FRAMEWORK, VERSION = "framework", "framework_version"  # keys of a checkpoint's metadata


class Session:
    """The training of one framework in one process of a job. Every call does nothing where there is no job.

    Args:
        framework: The framework's name, as users import it.
        version: Its release.
        context: The script's own context, where it has one; closed by the script.
        lowest: The oldest release that the door works with.

    Raises:
        RuntimeError: The release is older.
    """

    def __init__(
        self, framework: str, version: str, context: Optional[Context] = None, lowest: Tuple[int, ...] = ()
    ) -> None:
        if tuple(int(number) for number in re.findall(r"\d+", version)) < lowest:
            raise RuntimeError(
                "trainmaster.%s works with %s %s or newer, and this is %s: train in an image with a newer release"
                % (framework, framework, ".".join(map(str, lowest)), version)
            )
        self._framework = framework
        self._version = version
        self._given = context
        self._opened: Optional[Context] = None
        self._info = _trial_job()
        self._validated: Set[str] = set()  # names of the metrics of all validations
        self._named_missing = False
        self._percent = -1
        self.leaving = False  # whether the training was told to leave

    @property
    def active(self) -> bool:
        """Whether this process trains a trial in a job."""
        return self._info is not None

    @property
    def is_chief(self) -> bool:
        """Whether this rank reports."""
        return self._context.distributed.rank == 0

    def open(self, distributed: Optional[DistributedContext] = None) -> None:
        """Connect to the other ranks, and to the master. All ranks call. Does nothing the second time.

        Args:
            distributed: The ranks, where the framework knows them better than the launchers' variables say.

        Raises:
            ValueError: The ranks are not known: no launcher started this process.
            DistributedError: Another rank did not come.
        """
        if self._info is None or self._given is not None or self._opened is not None:
            return
        # The job's own ranks, also where the context is made for them by the framework.
        self._opened = init(distributed=distributed or DistributedContext.from_environment())
        self._opened.start()

    def report_training(self, step: int, metrics: Mapping[str, Any], group: str = "training") -> None:
        """Report metrics of training under the framework's names.

        Args:
            step: Optimizer steps since the start of the trial.
            metrics: Name and number.
            group: Another group than `training`.
        """
        if self.active and metrics:
            self._context.train.report_metrics(group, step, metrics)

    def report_validation(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics of a validation. The next `asked_to_leave` waits for the searcher's decision on them.

        Args:
            step: Optimizer steps since the start of the trial.
            metrics: Name and number.
        """
        if self.active and metrics:
            self._validated.update(metrics)
            self._context.train.report_validation_metrics(step, metrics)

    def check_searcher_metric(self) -> None:
        """Check that the validations so far hold the metric that the search waits for. To be called after one.

        Raises:
            ValueError: The search compares trials by a metric that was not reported. Names those that were.
        """
        if self._info is None or not self._validated or self._named_missing:
            return
        searcher = self._info.trial._config.get("searcher") or {}
        wanted = [searcher.get("metric"), searcher.get("time_metric")]
        missing = [str(name) for name in wanted if name and name not in self._validated]
        if not missing:
            return
        self._named_missing = True
        sentence = "the searcher waits for the metric %r, which %s does not report in a validation; it reports: %s" % (
            missing[0],
            self._framework,
            ", ".join(sorted(self._validated)),
        )
        if searcher.get("name") != "single":
            raise ValueError(sentence + ". Set searcher.metric to one of these")
        if self.is_chief:  # one trial needs it only to tell its best checkpoint
            logger.warning("%s", sentence)

    def report_progress(self, done: float, whole: float) -> None:
        """Report how much of the training is done, once for each percent.

        Args:
            done: Steps, epochs, or whatever is counted, since the start of the trial.
            whole: The same for the whole training; zero, negative or infinite where nobody knows.
        """
        if not self.active or not 0 < whole < math.inf:
            return
        percent = int(100 * min(1.0, max(0.0, done / whole)))
        if percent > self._percent:
            self._percent = percent
            self._context.train.report_progress(percent / 100)

    def asked_to_leave(self) -> bool:
        """Check whether this training must save its work and leave. All ranks call, after the same step.

        Returns:
            True from the first request on; the caller then saves a checkpoint and calls `leave`.

        Raises:
            DistributedError: Another rank has ended, or is in another call.
        """
        if self.active and not self.leaving:
            self.leaving = self._context.preempt.should_preempt()
            if self.leaving and self.is_chief:
                logger.info("asked to leave: the training saves a checkpoint and ends")
        return self.leaving

    def save(self, path: Path, step: int, metadata: Optional[Mapping[str, Any]] = None) -> Optional[str]:
        """Copy a checkpoint that the framework has written into the checkpoint storage. All ranks call, when each has
        written its part.

        Ranks may see one folder, or each node its own. Of files with the same name the lowest rank's is taken:
        frameworks that save on each node write copies there, which differ in what no one needs (a rank's own
        arguments).

        Args:
            path: The framework's checkpoint, a file or a folder. Ranks that do not have it bring nothing.
            step: Optimizer steps since the start of the trial.
            metadata: More to store with it.

        Returns:
            The checkpoint's uuid; None outside of a job.

        Raises:
            CheckpointError: A file cannot be copied, here or by another rank.
        """
        if not self.active:
            return None
        context = self._context
        root = path if path.is_dir() else path.parent
        if path.is_dir():
            own = [name for name in list_files(path) if not name.endswith("/")]
        else:
            own = [path.name] if path.is_file() else []
        mine = set(own)
        shard = context.distributed.size > 1
        if shard:
            mine -= {name for theirs in self.gathered(own)[: context.distributed.rank] for name in theirs}
        return context.checkpoint.upload(
            root if mine else None, self._described(step, metadata), shard=shard, selector=lambda name: name in mine
        )

    @contextlib.contextmanager
    def store(self, step: int, metadata: Optional[Mapping[str, Any]] = None) -> Iterator[Path]:
        """Write a checkpoint straight into the storage: `with store(step) as folder:`. All ranks enter, in a job only.

        Args:
            step: Optimizer steps since the start of the trial.
            metadata: More to store with it.

        Yields:
            The folder to write into, which all ranks see.

        Raises:
            CheckpointError: The folder cannot be made, or another rank failed.
        """
        context = self._context
        described = self._described(step, metadata)
        with context.checkpoint.store_path(described, shard=context.distributed.size > 1) as (folder, _):
            yield folder

    def gathered(self, value: Any) -> List[Any]:
        """Return the values of all ranks, in their order. All ranks call."""
        return self._context.distributed.allgather(value)

    def checkpoint(self) -> Optional[Path]:
        """Return the folder of the checkpoint from which this trial continues; None at its start. Read only.

        Raises:
            CheckpointError: It is gone, or another framework wrote it.
        """
        latest = self.latest
        if latest is None:
            return None
        folder = self.folder_of(latest)
        if folder is None:
            raise CheckpointError("checkpoint %s, from which this trial continues, is gone" % latest)
        found = self.metadata_of(latest)
        if found.get(FRAMEWORK) != self._framework:
            raise CheckpointError(
                "checkpoint %s was written by %s; %s cannot continue from it"
                % (latest, found.get(FRAMEWORK) or "another program", self._framework)
            )
        if found.get(VERSION) != self._version:
            logger.warning(
                "checkpoint %s was written by %s %s; this is %s",
                latest,
                self._framework,
                found.get(VERSION),
                self._version,
            )
        return folder

    @property
    def latest(self) -> Optional[str]:
        """The uuid of the checkpoint from which this trial continues; None at its start."""
        return None if self._info is None else self._info.latest_checkpoint

    def folder_of(self, uuid: str) -> Optional[Path]:
        """Return the folder of any checkpoint of this storage; None where it is gone."""
        if self._info is None or self._info.runtime_info is None:
            return None
        try:
            return storage_of_job(self._info).existing(uuid)
        except CheckpointError:
            return None

    def metadata_of(self, uuid: str) -> Dict[str, Any]:
        """Return the metadata that is stored with a checkpoint's files; empty without any."""
        if self._info is None or self._info.runtime_info is None:
            return {}
        storage = storage_of_job(self._info)
        if storage.in_store:
            storage.existing(uuid)
        return storage.read_metadata(uuid) or {}

    @property
    def run_dir(self) -> Optional[Path]:
        """The job's private folder on this node, removed at its end; None outside of a job."""
        return None if self._info is None or self._info.runtime_info is None else self._info.runtime_info.run_dir

    @property
    def seed(self) -> Optional[int]:
        """The trial's seed; None outside of a job."""
        return None if self._info is None else self._info.trial.trial_seed

    def close(self) -> None:
        """Close the connections. Does nothing where there are none, or they are the script's own."""
        if self._opened is not None:
            context, self._opened = self._opened, None
            context.close()
            context.distributed.close()

    def leave(self) -> NoReturn:
        """End this process, whose work is saved.

        A script whose training returns early would go on to test, publish or save a half-trained model.

        Raises:
            SystemExit: With status 0.
        """
        self.close()
        raise SystemExit(0)

    def _described(self, step: int, metadata: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
        return {**(metadata or {}), "steps_completed": step, FRAMEWORK: self._framework, VERSION: self._version}

    @property
    def _context(self) -> Context:
        self.open()
        context = self._given or self._opened
        assert context is not None
        return context


def _trial_job() -> Optional[ClusterInfo]:
    info = get_cluster_info()
    return info if info is not None and info.task_type == "TRIAL" else None
