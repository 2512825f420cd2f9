"""Faults between the master and a real PBS: commands that are slow, noisy or interrupted."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.dispatcher_site import Bench, wait
from tests.support.pbs.recorded import recorded
from tests.support.pbs.site import PbsSite
from tests.support.pbs.wrapped import BANNER, put_script
from trainmaster.dispatchers.base import (
    Ambiguous,
    DispatcherError,
    JobRef,
    JobState,
    Rejected,
    Setup,
    Signal,
    Transient,
    Unreachable,
)
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.pbs import PbsDispatcher

pytestmark = pytest.mark.pbs


class Wrapped:
    """The site's dispatcher with some commands replaced by scripts; `$REAL` in them is the real one."""

    def __init__(self, setup: Setup, site: PbsSite, folder: Path) -> None:
        self._setup, self._site, self._folder = setup, site, folder
        self._made: list[PbsDispatcher] = []

    def __call__(self, scripts: dict[str, str], **options: Any) -> PbsDispatcher:
        commands = {**self._setup.options["commands"]}
        for name, text in scripts.items():
            commands[name] = put_script(self._folder / name, self._site, text)
        merged = {**self._setup.options, "commands": commands, **options}
        made = PbsDispatcher(Setup(self._setup.name, self._setup.prefix, self._setup.job_root, merged))
        self._made.append(made)
        return made

    def close(self) -> None:
        for dispatcher in self._made:
            dispatcher.close()


@pytest.fixture
def wrapped(setup: Setup, pbs_site: PbsSite, tmp_path: Path) -> Iterator[Wrapped]:
    made = Wrapped(setup, pbs_site, tmp_path)
    yield made
    made.close()


def test_submit_without_answer_is_ambiguous_and_job_is_found(bench: Bench, wrapped: Wrapped) -> None:
    slow = wrapped({"qsub": '"$REAL" "$@" >/dev/null\nexec sleep 60'}, submit_deadline=5)
    spec = bench.spec()
    with pytest.raises(Ambiguous) as caught:
        slow.submit(spec)
    assert caught.value.token == spec.token
    wait(lambda: bench.seen(spec.token), "the job whose submit had no answer")
    wait(lambda: bench.seen(spec.token)[0].state is JobState.COMPLETED, "its end")
    assert len(bench.seen(spec.token)) == 1


def test_a_submit_that_ends_with_nothing_is_ambiguous(bench: Bench, wrapped: Wrapped) -> None:
    for script in ("exit 0", "kill -9 $$", "exit 7"):
        with pytest.raises(Ambiguous):
            wrapped({"qsub": script}).submit(bench.spec())


def test_unreachable_server_changes_no_job_state(bench: Bench, wrapped: Wrapped) -> None:
    ref = bench.submit(programs.WAITS)
    bench.ready(ref)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        environment = {
            **bench.setup.options["environment"],
            "PBS_BATCH_SERVICE_PORT": str(nobody.getsockname()[1]),
        }
    away = wrapped({}, environment=environment)
    calls = [
        away.observe,
        away.pools,
        away.probe,
        lambda: away.submit(bench.spec()),
        lambda: away.cancel([ref]),
        lambda: away.signal([ref], Signal.PREEMPT),
        lambda: away.explain(ref),
    ]
    for call in calls:
        with pytest.raises(Unreachable):
            call()  # type: ignore[no-untyped-call]
    assert away.check(bench.spec()) == []  # nothing can be said of its queues
    assert bench.state(ref) in (JobState.STARTING, JobState.RUNNING)


def test_a_missing_command_is_unreachable(bench: Bench, wrapped: Wrapped) -> None:
    commands = {**bench.setup.options["commands"], "qstat": "/nowhere/qstat", "qsub": "/nowhere/qsub"}
    dispatcher = wrapped({}, commands=commands)
    for call in (dispatcher.observe, dispatcher.probe, lambda: dispatcher.submit(bench.spec())):
        with pytest.raises(Unreachable):
            call()


def test_a_server_that_hangs_is_unreachable(bench: Bench, wrapped: Wrapped) -> None:
    hanging = wrapped({"qstat": "exec sleep 60"}, query_deadline=1)
    with pytest.raises(Unreachable, match="no answer"):
        hanging.observe()


def test_banners_and_words_of_hooks_are_no_jobs(bench: Bench, wrapped: Wrapped) -> None:
    noisy = wrapped(dict.fromkeys(("qsub", "qstat", "qselect", "pbsnodes"), BANNER))
    assert noisy.pools()
    assert noisy.observe().jobs == ()  # what stood beside queues and nodes is known for a banner
    ref = noisy.submit(bench.spec(programs.WAITS))
    bench.ready(ref)
    snapshot = noisy.observe()
    assert [job.job_id for job in snapshot.jobs] == [ref.job_id]
    assert "1.fake" not in {job.job_id for job in snapshot.external}
    assert [pool.name for pool in noisy.pools()] == [pool.name for pool in bench.dispatcher.pools()]
    noisy.cancel([ref])
    assert Bench(noisy, bench.setup, bench.pool).ended(ref).state is JobState.CANCELLED


def test_an_answer_that_is_no_list_is_not_an_empty_list(bench: Bench, wrapped: Wrapped) -> None:
    with pytest.raises(Transient):
        wrapped({"qstat": "echo 'please log in again'"}).observe()


def test_a_wrong_status_is_not_an_empty_list(bench: Bench, wrapped: Wrapped) -> None:
    for script in ("exit 3", "echo 'qstat: Batch protocol error' >&2; exit 159"):
        with pytest.raises(DispatcherError):
            wrapped({"qstat": script}).observe()


def test_without_history_only_live_jobs_are_shown(bench: Bench, wrapped: Wrapped) -> None:
    says = f"cat >&2 <<'END'\n{recorded('no-history-qselect.err')}END"
    bare = wrapped({"qselect": says, "qstat": f'case " $* " in *" -x "*) {says}\n;; *) exec "$REAL" "$@" ;; esac'})
    ref = bench.submit(programs.WAITS)
    bench.ready(ref)
    (seen,) = [job for job in bare.observe().jobs if job.token == ref.token]
    assert not seen.state.terminal
    assert bare.explain(ref).state is not JobState.UNKNOWN
    bench.dispatcher.cancel([ref])
    bench.ended(ref)
    assert ref.token not in {job.token for job in bare.observe().jobs}
    assert bare.explain(ref).state is JobState.UNKNOWN


def test_a_history_that_fails_is_an_error_not_an_absence(bench: Bench, wrapped: Wrapped) -> None:
    failing = wrapped({"qselect": "echo 'qselect: Connection reset by peer' >&2; exit 1"})
    with pytest.raises(Unreachable):
        failing.observe()


def test_cancel_ignores_ended_and_unknown_jobs(bench: Bench) -> None:
    ended = bench.submit(programs.ENDS_WELL)
    bench.ended(ended)
    alive = bench.submit(programs.WAITS)
    bench.ready(alive)
    server = alive.job_id.partition(".")[2]
    ghost = JobRef(f"{bench.setup.prefix}ghost", f"999999.{server}")
    bench.dispatcher.signal([ghost, ended], Signal.PREEMPT)
    bench.dispatcher.cancel([ghost, ended, alive])
    assert bench.ended(alive).state is JobState.CANCELLED


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pool": "no-such-queue"}, "Unknown queue"),
        ({"options": ("-l no_such_resource=1",)}, "no_such_resource"),
        ({"options": ("-q other",)}, "-q is not configurable"),
        ({"options": ("-l select=3:ncpus=1",)}, "leave the number out"),
        ({"user": "somebody-else"}, "cannot run as somebody-else"),
    ],
)
def test_refused_submit_says_why(bench: Bench, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Rejected) as refused:
        bench.dispatcher.submit(bench.spec(**changes))
    assert words in str(refused.value)


def test_a_look_alike_is_refused(wrapped: Wrapped) -> None:
    says = f"cat >&2 <<'END'\n{recorded('slurm-torque-qsub.err')}END\nexit 2"
    (problem, *_) = wrapped({"qsub": says}).probe().problems
    assert problem.fatal
    assert "type: slurm" in problem.fix
