"""A search goes through ten random faults on a real Slurm, and the checks see what they are for.

`scripts/bench chaos` runs the same for as long as one likes, and on Docker hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.support.chaos.anywhere import ANYWHERE
from tests.support.chaos.checks import check
from tests.support.chaos.driver import Load, Run
from tests.support.chaos.kinds import draw
from tests.support.chaos.on_docker import ON_DOCKER
from tests.support.chaos.on_slurm import ON_SLURM
from tests.support.chaos.slurm_site import ChaosCluster, recover, slurm_site
from tests.support.cluster.packages import Unavailable

SEED = 5
FAULTS = 10
# After those a job may have to be given up, which takes minutes; or they freeze something, or lose submits, for long.
TOO_LONG = {
    "controller with an older state", "controller killed", "controller frozen", "node cut off", "node lost its power",
    "slurmd killed", "job requeued", "job requeued and held", "leader frozen", "database frozen", "connections hang",
    "connections refused", "runtime frozen", "squeue hangs", "sbatch refused for now", "sbatch without an answer",
}  # fmt: skip


@pytest.fixture
def chaos_cluster() -> Iterator[ChaosCluster]:
    cluster = ChaosCluster()
    try:
        cluster.up()
    except Unavailable as reason:
        pytest.skip(f"no Slurm cluster: {reason}")
    yield cluster
    recover(cluster)
    cluster.down()


@pytest.mark.slurm
@pytest.mark.slow
def test_search_survives_faults_and_checks_find_violations(chaos_cluster: ChaosCluster) -> None:
    kinds = [kind for kind in (*ANYWHERE.all, *ON_SLURM.all) if kind.name not in TOO_LONG]
    told: list[str] = []
    with slurm_site(chaos_cluster) as site:
        load = Load(trials=16, at_once=8, steps=5, pause=0.3, searches=1)
        report = Run(site, kinds, SEED, told.append, load).run(faults=FAULTS, gap=0.6)
        assert report.findings.violations == [], "\n".join(told)
        assert report.faults.total() + report.missed.total() == FAULTS
        assert report.findings.steps >= 14 * 5

        site.rows("UPDATE metrics SET archived = true WHERE trial_id = 1 AND steps = 2 RETURNING id")
        site.rows("""
            INSERT INTO metrics (kind, trial_id, run_id, "group", steps, at, metrics)
            SELECT kind, trial_id, run_id + 1, "group", steps, at, metrics FROM metrics
            WHERE trial_id = 2 AND steps = 3 AND kind = 'training' RETURNING id
        """)
        wrong = """'{"avg_metrics": {"number": 5}}'"""
        site.rows(
            f"UPDATE metrics SET metrics = {wrong} WHERE trial_id = 3 AND steps = 1 AND kind = 'training' RETURNING id"
        )
        site.rows("UPDATE trials SET restarts = restarts + 1 WHERE id = 4 RETURNING id")
        site.rows("UPDATE trials SET state = 'ERROR' WHERE id = 5 RETURNING id")
        site.rows("UPDATE allocations SET state = 'RUNNING' WHERE trial_id = 6 RETURNING id")
        spoiled = "\n".join(check(site, site.checkpoints).violations)
    for words in (
        "trial 1: training of steps [2] is missing",
        "trial 2: training of steps [3] counts twice",
        "step 1: 5 instead of",
        "trial 4 was charged",
        "trial 5 ended as ERROR, not",
        "is live: RUNNING",
    ):
        assert words in spoiled


def test_seed_fixes_faults_and_each_kind_comes_before_repeats() -> None:
    kinds = [*ANYWHERE.all, *ON_SLURM.all, *ON_DOCKER.all]
    assert len({kind.name for kind in kinds}) == len(kinds) >= 15
    page = (Path(__file__).resolve().parents[3] / "docs" / "chaos.md").read_text()
    assert [kind.name for kind in kinds if f"\n| {kind.name} | {kind.what} |\n" not in page] == []

    def drawn(seed: int) -> list[tuple[int, str, float, float]]:
        faults = islice(draw(seed, kinds, 1.0), 2 * len(kinds))
        return [(fault.number, fault.kind.name, fault.dice.random(), fault.pause) for fault in faults]

    assert drawn(7) == drawn(7) != drawn(8)
    assert sorted(name for _, name, _, _ in drawn(7)[: len(kinds)]) == sorted(kind.name for kind in kinds)
