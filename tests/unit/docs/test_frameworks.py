from __future__ import annotations

from tests.support.frameworks import OF_EXAMPLES, OF_SUMS, ON_DOCKER
from tests.support.frameworks_page import parts, recorded, table
from tests.support.runtime import doors


def test_the_page_has_the_trainings_that_were_recorded() -> None:
    """After a change of what the tests train: `scripts/generate`."""
    assert parts()[1] == table()
    assert doors.parts()[1] == doors.table()


def test_recorded_trainings_match_tested_ones() -> None:
    """Versions are compared where they can be read: in the jobs, by the trainings themselves."""
    trained = [("Slurm", training.framework, f"examples/{training.name}") for training in OF_EXAMPLES]
    trained += [("Slurm", training.framework, "sum") for training in OF_SUMS]
    trained += [("Docker", training.framework, "sum") for training in ON_DOCKER]
    found = [(row["scheduler"], row["framework"], row["what"]) for row in recorded()]
    assert sorted(row for row in found if row[0] != "PBS") == sorted(trained)
