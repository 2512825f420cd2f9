"""Each ended job is queried once."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.dispatchers.pbs.outcomes import RecentlyEnded
from trainmaster.dispatchers.pbs.parse import PbsJob


def ended(number: int, name: str) -> PbsJob:
    return PbsJob(f"{number}.s", name, "alice", "F", "workq", exit_status=0)


def test_ended_job_is_queried_once_and_only_ours_are_kept() -> None:
    known = RecentlyEnded(lambda job: job.name.startswith("det-"))
    assert known.unknown(["1.s", "2.s", "3.s"]) == ["1.s", "2.s", "3.s"]
    known.learn(["1.s", "2.s", "3.s"], [ended(1, "det-a"), ended(2, "other")])
    assert [job.job_id for job in known.jobs] == ["1.s"]
    assert known.unknown(["1.s", "2.s", "3.s", "4.s"]) == ["3.s", "4.s"]  # of 3.s nothing came back


def test_job_of_unknown_state_is_queried_again() -> None:
    known = RecentlyEnded(lambda job: True)
    odd, moved = replace(ended(1, "det-a"), state="ODD"), replace(ended(2, "det-b"), state="M")
    known.learn(known.unknown(["1.s", "2.s"]), [odd, moved])
    assert known.jobs == [odd, moved]
    assert known.unknown(["1.s", "2.s"]) == ["1.s"]
    known.learn(["1.s"], [ended(1, "det-a")])
    assert known.jobs == [ended(1, "det-a"), moved]
    assert known.unknown(["1.s", "2.s"]) == []


def test_unlisted_job_is_forgotten() -> None:
    known = RecentlyEnded(lambda job: True)
    known.learn(known.unknown(["1.s", "2.s"]), [ended(1, "det-a"), ended(2, "det-b")])
    assert known.unknown(["2.s"]) == []
    assert [job.job_id for job in known.jobs] == ["2.s"]
    assert known.unknown(["1.s", "2.s"]) == ["1.s"]
