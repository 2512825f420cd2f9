"""The table of checkpoints: slim rows of an experiment's or a trial's, without configurations and lists of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Double, cast, func, select

from trainmaster.master.db.tables import Checkpoint, Experiment, Trial
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.views.experiment_table import cell
from trainmaster.master.values.storage import StorageRef

MOST = 20_000  # rows
COLUMNS = ("uuid", "trial", "steps", "metric", "size", "files", "state", "reported", "storage", "pinned")
_LEAVES = ("bucket", "host_path", "container_path", "container")  # of a storage: what says best where it is


class CheckpointTable(BoundService):
    """Tables of checkpoints."""

    def read(self, *, experiment_id: int | None = None, trial_id: int | None = None) -> list[Sequence[Any]]:
        """Return the newest checkpoints of one of them, at most MOST, in the order of COLUMNS. Times are seconds since
        1970. Raises NotFound."""
        c = Checkpoint.__table__.c
        owner = c.experiment_id == experiment_id if experiment_id is not None else c.trial_id == trial_id
        files = func.jsonb_array_length(func.jsonb_path_query_array(c.resources, "$.keyvalue()"))
        columns = (
            c.uuid,
            c.trial_id,
            c.steps_completed,
            c.metric,
            c.size,
            files,
            c.state,
            cast(func.extract("epoch", c.report_time), Double),
            c.storage,
            c.pinned,
        )
        with self._store.transaction() as session:
            known = (
                session.get(Experiment, experiment_id) if experiment_id is not None else session.get(Trial, trial_id)
            )
            if known is None:
                what = f"experiment {experiment_id}" if experiment_id is not None else f"trial {trial_id}"
                raise NotFound(f"There is no {what}.")
            rows = session.execute(
                select(*columns).where(owner).order_by(c.report_time.desc(), c.uuid).limit(MOST)
            ).all()
        return [[str(row[0]), row[1], row[2], cell(row[3]), *row[4:8], _place(row[8]), row[9]] for row in rows]


def _place(storage: StorageRef | None) -> str:
    """Where it lies, in few words: `s3://bucket/prefix`, `shared_fs:/checkpoints`. No credentials."""
    given = storage or StorageRef({})
    kind, prefix = given.type, given.prefix
    where = next(filter(None, map(given.text, _LEAVES)), "")
    if kind in ("s3", "gcs", "azure"):
        return f"{kind}://" + "/".join(part for part in (where, prefix) if part)
    return f"{kind}:" + (f"{where.rstrip('/')}/{prefix}" if prefix else where)
