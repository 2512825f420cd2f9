"""Experiments and trials with their verbs. Each is as it was when it was asked for; `reload` looks again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from trainmaster.client import models
from trainmaster.client.errors import ClientError, MasterUnreachable

if TYPE_CHECKING:
    from trainmaster.client.artifacts import Checkpoint
    from trainmaster.client.master import Master

PATIENCE = 600.0  # seconds for which one who waits bears with a master that is away


E = TypeVar("E", bound="Experiment | Trial")


def _ended(look: Callable[[], E], interval: float, patience: float) -> E:
    """What `look` finds once it has ended; a master that goes away meanwhile is waited for."""
    away_since: float | None = None
    while True:
        try:
            if (seen := look()).ended_for_good:
                return seen
            away_since = None
        except MasterUnreachable:
            away_since = away_since or time.monotonic()
            if time.monotonic() > away_since + patience:
                raise
        time.sleep(interval)


@dataclass(frozen=True)
class Experiment(models.Experiment):
    """Every verb raises MasterUnreachable or an APIError."""

    master: Master = field(repr=False, compare=False)

    def reload(self) -> Experiment:
        return self.master.experiment(self.id)

    @property
    def config(self) -> models.Json:
        """As it runs, with all defaults filled in."""
        found: models.Json = self.raw["config"]
        return found

    def wait(self, interval: float = 2.0, *, patience: float = PATIENCE) -> Experiment:
        """The experiment once it has ended, however it ended: `state` tells.

        Args:
            interval: seconds between two looks.
            patience: seconds for which a master that went away is waited for.
        """
        return _ended(self.reload, interval, patience)

    # -- what it did ----------------------------------------------------------------------------------------------

    def trials(self) -> list[Trial]:
        """By ascending id."""
        return self.master.trials(self.id)

    def first_trial(self, interval: float = 0.5) -> Trial:
        """Waits for it, if need be. Raises ClientError when the experiment has ended without one."""
        while True:
            if found := self.master.trials(self.id, limit=1, everything=False):
                return found[0]
            if self.reload().ended_for_good:
                raise ClientError(f"Experiment {self.id} ended without a trial.")
            time.sleep(interval)

    def best_trial(self) -> Trial | None:
        """By the searcher's metric; None while nothing was measured."""
        best = self.reload().best_trial_id
        return None if best is None else self.master.trial(best)

    def checkpoints(self, *, best: int | None = None) -> list[Checkpoint]:
        """Oldest first; or so many of the best by the searcher's metric, the best first."""
        return self.master.checkpoints(self.id, best=best)

    def best_checkpoint(self) -> Checkpoint:
        """Raises ClientError when there is none."""
        found = self.checkpoints(best=1)
        if not found:
            raise ClientError(f"Experiment {self.id} has no checkpoint with a metric.")
        return found[0]

    def metrics(self, group: str = "") -> Iterator[models.MetricsReport]:
        """Of all its trials, one after the other; a group, or all."""
        return self.master.metrics([trial.id for trial in self.trials()], group)

    def files(self) -> bytes:
        """Its code as a gzipped tar; empty for none."""
        return self.master.edits.files(self.id)

    # -- what becomes of it ---------------------------------------------------------------------------------------

    def pause(self) -> None:
        self.master.steer(self.id, "pause")

    def activate(self) -> None:
        self.master.steer(self.id, "activate")

    def cancel(self) -> None:
        """Its trials save a checkpoint and leave."""
        self.master.steer(self.id, "cancel")

    def kill(self) -> None:
        self.master.steer(self.id, "kill")

    def archive(self) -> None:
        self.master.edits.steer(self.id, "archive")

    def unarchive(self) -> None:
        self.master.edits.steer(self.id, "unarchive")

    def delete(self) -> None:
        """With its checkpoints and logs. The master goes on with it afterwards."""
        self.master.delete_experiment(self.id)

    def move(self, project_id: int) -> None:
        self.master.edits.move(self.id, project_id)

    def edit(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        notes: str | None = None,
        labels: list[str] | None = None,
    ) -> Experiment:
        """What is None stays as it is."""
        fields = {"name": name, "description": description, "notes": notes, "labels": labels}
        self.master.edits.edit(self.id, **{key: value for key, value in fields.items() if value is not None})
        return self.reload()


@dataclass(frozen=True)
class Trial(models.Trial):
    """Every verb raises MasterUnreachable or an APIError."""

    master: Master = field(repr=False, compare=False)

    def reload(self) -> Trial:
        return self.master.trial(self.id)

    def wait(self, interval: float = 2.0, *, patience: float = PATIENCE) -> Trial:
        """The trial once it has ended, with all its attempts; as `Experiment.wait`."""
        return _ended(self.reload, interval, patience)

    def experiment(self) -> Experiment:
        return self.master.experiment(self.experiment_id)

    def metrics(self, group: str = "") -> Iterator[models.MetricsReport]:
        """Training, validation, a group of the training code's own, or all of them."""
        return self.master.metrics([self.id], group)

    def logs(self, **options: Any) -> Iterator[models.LogLine]:
        """`options` are those of `Master.logs`: follow, head, tail and the API's filters."""
        return self.master.logs(self.id, **options)

    def checkpoints(self, *, best: bool = False) -> list[Checkpoint]:
        """Those whose files are there; oldest first, or the best first."""
        return self.master.trial_checkpoints(self.id, best=best)

    def newest_checkpoint(self) -> Checkpoint:
        """Raises ClientError when there is none."""
        found = self.checkpoints()
        if not found:
            raise ClientError(f"Trial {self.id} has no checkpoint.")
        return found[-1]

    def best_checkpoint(self) -> Checkpoint:
        """By the searcher's metric. Raises ClientError when there is none."""
        found = self.checkpoints(best=True)
        if not found:
            raise ClientError(f"Trial {self.id} has no checkpoint.")
        return found[0]

    def story(self) -> list[models.StoryEvent]:
        """Everything that happened to it, and why."""
        return self.master.story(self.id)

    def kill(self) -> None:
        self.master.kill_trial(self.id)
