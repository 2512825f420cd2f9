"""Experiments and trials with their methods.

An object holds the state at the time of the request; `reload` returns a new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from trainmaster.client import models
from trainmaster.client.errors import ClientError
from trainmaster.client.patience import Patience

if TYPE_CHECKING:
    from trainmaster.client.artifacts import Checkpoint
    from trainmaster.client.custom_search import CustomSearch
    from trainmaster.client.master import Master

E = TypeVar("E", bound="Experiment | Trial")


def _ended(read: Callable[[], E], interval: float, patience: float | None) -> E:
    """Poll with `read` until what it returns has ended; an absence of the master may last `patience` seconds."""
    waiting = Patience(patience)
    while not (current := waiting.ask(read)).ended_for_good:
        time.sleep(interval)
    return current


@dataclass(frozen=True)
class Experiment(models.Experiment):
    """An experiment, as it was when it was read. Every method may raise MasterUnreachable and APIError."""

    master: Master = field(repr=False, compare=False)

    def reload(self) -> Experiment:
        """Get this experiment again. As `Master.experiment`."""
        return self.master.experiment(self.id)

    @property
    def config(self) -> models.Json:
        """The configuration that it runs with, with all defaults filled in."""
        config: models.Json = self.raw["config"]
        return config

    def wait(self, interval: float = 2.0, *, patience: float | None = None) -> Experiment:
        """Wait until the experiment has ended, in whatever state.

        Args:
            interval: Seconds between two requests.
            patience: Seconds to keep trying while the master does not answer; None: DET_PATIENCE, else 600.

        Returns:
            The experiment as it ended; see its `state`.

        Raises:
            NoSuchThing: It has been deleted.
            MasterUnreachable: The master did not answer for `patience` seconds.
        """
        return _ended(self.reload, interval, patience)

    def custom_search(self) -> CustomSearch:
        """Be the method of this experiment's search. As `Master.custom_search`."""
        return self.master.custom_search(self.id)

    # -- results --------------------------------------------------------------------------------------------------

    def trials(self) -> list[Trial]:
        """List its trials. As `Master.trials`."""
        return self.master.trials(self.id)

    def first_trial(self, interval: float = 0.5, *, patience: Patience | None = None) -> Trial:
        """Get its first trial, and wait until there is one.

        Args:
            interval: Seconds between two requests.
            patience: How long to keep trying while the master does not answer; None: as DET_PATIENCE says.

        Returns:
            The trial with the lowest id.

        Raises:
            ClientError: The experiment has ended without a trial.
            MasterUnreachable: The master did not answer for longer than `patience`.
        """
        waiting = patience or Patience()
        while True:
            if trials := waiting.ask(lambda: self.master.trials(self.id, limit=1, everything=False)):
                return trials[0]
            if waiting.ask(self.reload).ended_for_good:
                raise ClientError(f"Experiment {self.id} ended without a trial.")
            time.sleep(interval)

    def best_trial(self) -> Trial | None:
        """Get the best trial by the searcher's metric.

        Returns:
            The trial; None while no trial has reported the metric.
        """
        best = self.reload().best_trial_id
        return None if best is None else self.master.trial(best)

    def checkpoints(self, *, best: int | None = None) -> list[Checkpoint]:
        """List its checkpoints. As `Master.checkpoints`."""
        return self.master.checkpoints(self.id, best=best)

    def best_checkpoint(self) -> Checkpoint:
        """Get the best checkpoint by the searcher's metric.

        Returns:
            The checkpoint.

        Raises:
            ClientError: No checkpoint has a metric.
        """
        checkpoints = self.checkpoints(best=1)
        if not checkpoints:
            raise ClientError(f"Experiment {self.id} has no checkpoint with a metric.")
        return checkpoints[0]

    def metrics(self, group: str = "") -> Iterator[models.MetricsReport]:
        """Read the metrics of all its trials, trial by trial in order of steps. As `Master.metrics`."""
        return self.master.metrics([trial.id for trial in self.trials()], group)

    def files(self) -> bytes:
        """Download its training code. As `Experiments.files`."""
        return self.master.edits.files(self.id)

    # -- changes --------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause it: its trials save a checkpoint and free their resources. As `Master.pause`."""
        self.master.pause(self.id)

    def activate(self) -> None:
        """Let it run again after a pause. As `Master.activate`."""
        self.master.activate(self.id)

    def cancel(self) -> None:
        """Cancel it: its trials save a checkpoint and end. As `Master.cancel`."""
        self.master.cancel(self.id)

    def kill(self) -> None:
        """End it at once, without checkpoints. As `Master.kill`."""
        self.master.kill(self.id)

    def archive(self) -> None:
        """Archive it: lists leave it out unless asked for. As `Experiments.archive`."""
        self.master.edits.archive(self.id)

    def unarchive(self) -> None:
        """Undo `archive`. As `Experiments.unarchive`."""
        self.master.edits.unarchive(self.id)

    def delete(self) -> None:
        """Delete it with its checkpoints and logs. The master continues after the call has returned. As
        `Master.delete_experiment`."""
        self.master.delete_experiment(self.id)

    def move(self, project_id: int) -> None:
        """Move it to another project. As `Experiments.move`."""
        self.master.edits.move(self.id, project_id)

    def edit(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        notes: str | None = None,
        labels: list[str] | None = None,
    ) -> Experiment:
        """Change how it is described. None leaves a field as it is.

        Args:
            name: New name.
            description: New description.
            notes: New notes, in Markdown.
            labels: New labels, in place of all present ones.

        Returns:
            The experiment after the change.

        Raises:
            NotAllowed: The caller may not change it.
        """
        fields = {"name": name, "description": description, "notes": notes, "labels": labels}
        self.master.edits.edit(self.id, **{key: value for key, value in fields.items() if value is not None})
        return self.reload()


@dataclass(frozen=True)
class Trial(models.Trial):
    """A trial, as it was when it was read. Every method may raise MasterUnreachable and APIError."""

    master: Master = field(repr=False, compare=False)

    def reload(self) -> Trial:
        """Get this trial again. As `Master.trial`."""
        return self.master.trial(self.id)

    def wait(self, interval: float = 2.0, *, patience: float | None = None) -> Trial:
        """Wait until the trial has ended, with all its attempts.

        Args:
            interval: Seconds between two requests.
            patience: Seconds to keep trying while the master does not answer; None: DET_PATIENCE, else 600.

        Returns:
            The trial as it ended; see its `state`.

        Raises:
            NoSuchThing: It has been deleted.
            MasterUnreachable: The master did not answer for `patience` seconds.
        """
        return _ended(self.reload, interval, patience)

    def experiment(self) -> Experiment:
        """Get the experiment that it belongs to. As `Master.experiment`."""
        return self.master.experiment(self.experiment_id)

    def metrics(self, group: str = "") -> Iterator[models.MetricsReport]:
        """Read its metrics in order of steps. As `Master.metrics`."""
        return self.master.metrics([self.id], group)

    def logs(self, **options: Any) -> Iterator[models.LogLine]:
        """Read its log, in order of arrival. As `Master.logs`.

        Args:
            options: Those of `Master.logs`: follow, head, tail, notice, and the API's filters.
        """
        return self.master.logs(self.id, **options)

    def checkpoints(self, *, best: bool = False) -> list[Checkpoint]:
        """List its checkpoints whose files exist. As `Master.trial_checkpoints`."""
        return self.master.trial_checkpoints(self.id, best=best)

    def newest_checkpoint(self) -> Checkpoint:
        """Get its newest checkpoint.

        Returns:
            The checkpoint.

        Raises:
            ClientError: It has no checkpoint.
        """
        checkpoints = self.checkpoints()
        if not checkpoints:
            raise ClientError(f"Trial {self.id} has no checkpoint.")
        return checkpoints[-1]

    def best_checkpoint(self) -> Checkpoint:
        """Get its best checkpoint by the searcher's metric.

        Returns:
            The checkpoint.

        Raises:
            ClientError: It has no checkpoint.
        """
        checkpoints = self.checkpoints(best=True)
        if not checkpoints:
            raise ClientError(f"Trial {self.id} has no checkpoint.")
        return checkpoints[0]

    def story(self) -> list[models.StoryEvent]:
        """Get its story: events and decisions. As `Master.story`."""
        return self.master.story(self.id)

    def kill(self) -> None:
        """End it at once, without a checkpoint. As `Master.kill_trial`."""
        self.master.kill_trial(self.id)
