"""Argument vectors of PBS's commands."""

from __future__ import annotations

from trainmaster.dispatchers.pbs.commands import (
    PbsPrograms,
    QsubRequest,
    cancel,
    ended,
    ended_since,
    jobs,
    nodes,
    one,
    signal,
    submit,
)
from trainmaster.dispatchers.pbs.parse import Format

PROGRAMS = PbsPrograms(qsub="/opt/pbs/bin/qsub")


def submission(**more: object) -> QsubRequest:
    return QsubRequest(
        token="det-1",
        queue="gpu",
        select="2:ncpus=1:ngpus=4:mpiprocs=1",
        place="scatter",
        command=("/bin/bash", "/jobs/it's $HOME %j/job.sh"),
        **more,  # type: ignore[arg-type]
    )


def test_a_submit() -> None:
    words = submit(PROGRAMS, submission(resources={"walltime": "3600"}, user_options={"A": "acct", "m": "e"}))
    assert words == [
        "/opt/pbs/bin/qsub", "-f", "-N", "det-1", "-q", "gpu", "-r", "n", "-W", "umask=0022", "-j", "oe",
        "-o", "localhost:/dev/null", "-m", "e", "-l", "select=2:ncpus=1:ngpus=4:mpiprocs=1", "-l", "place=scatter",
        "-l", "walltime=3600", "-A", "acct", "--", "/bin/bash", "/jobs/it's $HOME %j/job.sh",
    ]  # fmt: skip


def test_no_variable_is_exported() -> None:
    words = submit(PROGRAMS, submission())
    assert not {"-V", "-v"} & set(words[: words.index("--")])


def test_the_users_project_wins_over_the_label() -> None:
    assert submit(PROGRAMS, submission(project="label"))[-5:-3] == ["-P", "label"]
    words = submit(PROGRAMS, submission(project="label", user_options={"P": "own"}))
    assert words[-5:-3] == ["-P", "own"]
    assert words.count("-P") == 1


def test_submit_requests_no_mail_by_default() -> None:
    words = submit(PROGRAMS, submission())
    assert words[words.index("-m") + 1] == "n"


def test_questions_are_asked_in_utc() -> None:
    for words in (
        jobs(PROGRAMS, Format.DSV, "@@"),
        ended_since(PROGRAMS, 0.0),
        one(PROGRAMS, Format.JSON, "@@", "1.s", history=True),
    ):
        assert words[:2] == ["/usr/bin/env", "TZ=UTC0"]


def test_forms() -> None:
    assert jobs(PROGRAMS, Format.DSV, "@@")[2:] == ["qstat", "-f", "-F", "dsv", "-D", "@@"]
    assert jobs(PROGRAMS, Format.JSON, "@@")[2:] == ["qstat", "-f", "-F", "json"]
    assert jobs(PROGRAMS, Format.TEXT, "@@")[2:] == ["qstat", "-f"]
    assert nodes(PROGRAMS, Format.DSV, "@@") == ["pbsnodes", "-a", "-F", "dsv", "-D", "@@"]


def test_history_query_covers_only_recent_ends() -> None:
    assert ended_since(PROGRAMS, 1795249330.9)[2:] == ["qselect", "-x", "-s", "FM", "-tm.gt.202611210822.10"]


def test_many_jobs_are_asked_for_a_hundred_at_a_time() -> None:
    ids = [f"{number}.s" for number in range(250)]
    asked = list(ended(PROGRAMS, Format.DSV, "@@", ids))
    assert [len(words) - asked[0].index("0.s") for words in asked] == [100, 100, 50]
    assert all("-E" in words for words in asked)
    assert sum(len(words) - 1 for words in cancel(PROGRAMS, ids)) == 250
    assert list(signal(PROGRAMS, ["1.s"], "USR2")) == [["qsig", "-s", "SIGUSR2", "1.s"]]
    assert list(cancel(PROGRAMS, [])) == []
