"""Lists which trials use a checkpoint, and the metrics that they reported with it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Select, select

from trainmaster.master.db.model_registry import ModelVersion, TrialSource
from trainmaster.master.db.tables import Checkpoint, Trial
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.metrics import metric_reports
from trainmaster.master.services.metrics.metric_reports import MetricReports
from trainmaster.master.services.model_registry.registered_models import RegisteredModels

KINDS = ("INFERENCE", "FINE_TUNING")


@dataclass(frozen=True)
class CheckpointUse:
    """A trial's report that it uses a checkpoint, as version `model_version` of a model if it came from there."""

    trial_id: int
    checkpoint: str
    kind: str
    model_id: int | None = None
    model_version: int | None = None


class CheckpointUses(BoundService):
    """The trials that use a checkpoint, with their metrics."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._metric_reports = MetricReports(master)
        self._registered_models = RegisteredModels(master)

    def note(self, source: CheckpointUse) -> None:
        """Store a use of a checkpoint; repeating it changes nothing. Raises Invalid, NotFound."""
        key = _uuid(source.checkpoint)
        with self._store.transaction() as session:
            if session.get(Trial, source.trial_id, with_for_update=True) is None:
                raise NotFound(f"There is no trial {source.trial_id}.")
            if session.get(Checkpoint, key) is None:
                raise NotFound(f"There is no checkpoint {source.checkpoint}.")
            same = select(TrialSource.id).where(
                TrialSource.trial_id == source.trial_id,
                TrialSource.checkpoint == key,
                TrialSource.kind == source.kind,
                TrialSource.model_id.is_not_distinct_from(source.model_id),
                TrialSource.model_version.is_not_distinct_from(source.model_version),
            )
            if session.scalar(same) is None:
                session.add(
                    TrialSource(
                        trial_id=source.trial_id,
                        checkpoint=key,
                        kind=source.kind,
                        model_id=source.model_id,
                        model_version=source.model_version,
                    )
                )

    def metrics_of_checkpoint(
        self, checkpoint: str, kind: str | None, group: str | None
    ) -> Iterator[metric_reports.StoredReport]:
        """Yield the metrics that trials which use the checkpoint have reported."""
        query = select(TrialSource.trial_id).where(TrialSource.checkpoint == _uuid(checkpoint))
        return self._metrics(query.where(TrialSource.kind == kind) if kind else query, group)

    def metrics_of_version(
        self, model: str, version: int, kind: str | None, group: str | None
    ) -> Iterator[metric_reports.StoredReport]:
        row: ModelVersion = self._registered_models.get_version(model, version).row
        query = select(TrialSource.trial_id).where(
            TrialSource.model_id == row.model_id, TrialSource.model_version == row.version
        )
        return self._metrics(query.where(TrialSource.kind == kind) if kind else query, group)

    def _metrics(self, query: Select[int], group: str | None) -> Iterator[metric_reports.StoredReport]:
        with self._store.transaction() as session:
            names = sorted(set(session.scalars(query)))
        return self._metric_reports.stream(names, group)


def _uuid(key: str) -> uuid.UUID:
    try:
        return uuid.UUID(key)
    except ValueError:
        raise Invalid(f"{key!r} is not the UUID of a checkpoint.") from None
