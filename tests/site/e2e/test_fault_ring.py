"""The bad days of a Slurm cluster, provoked on a real one: no trial lost, no job doubled, no end invented.

A bad day is mostly waiting: those that only spoil their own master's commands run at the same time, each with a master
of its own, and every test waits for its day. `docs/faults.md` lists what they show.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import slurm_cluster
from tests.support.faults import Site, site, small_disk
from tests.support.master import ended_as, log_text, wait_for
from trainmaster.client.errors import ClientError
from trainmaster.client.master import Master

__all__ = ["slurm_cluster"]
pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.ring]
Day = Callable[[Cluster], None]
QUIET = 12.0  # seconds: longer than the quiet period, twice MessageTimeout


def submits_that_go_wrong_in_every_way(cluster: Cluster) -> None:
    with site(cluster) as spoiled, spoiled.wrapped.spoiled("noisy"):
        spoiled.wrapped.plan(
            "sbatch",
            [
                "unanswered",
                "killed-after",
                "killed-before",
                "slow 12",
                "refuses Batch job submission failed: Socket timed out on send/recv operation",
                "refuses Rate limit exceeded, please retry momentarily",
                "refuses Batch job submission failed: Job violates accounting/QOS policy",
                "refuses Slurm temporarily unable to accept job, sleeping and retrying",
                "ok",
                "unanswered",
            ],
        )
        master = spoiled.start()
        number = spoiled.create(master, 8, epochs=3)
        spoiled.nothing_is_lost_or_doubled(master, number, epochs=3)
        assert each_token_once(spoiled, 8)


def a_master_that_is_killed_after_each_submit(cluster: Cluster) -> None:
    """Between the scheduler's answer and the master's note of it, ten times."""
    with site(cluster) as spoiled:
        master = spoiled.start()
        for _ in range(10):
            spoiled.wrapped.plan("sbatch", ["fatal"])
            with contextlib.suppress(ClientError):  # a slow answer to this is cut off, too
                spoiled.create(master, epochs=3)
            wait_for(lambda: spoiled.process.returncode == -signal.SIGKILL, "the end of the master", 90, 0.02)
            master = spoiled.start()
        numbers = [experiment.id for experiment in master.experiments()]
        assert len(numbers) == 10
        for number in numbers:
            spoiled.nothing_is_lost_or_doubled(master, number, epochs=3)
        assert each_token_once(spoiled, 10)


def listings_that_lie(cluster: Cluster) -> None:
    with site(cluster) as spoiled:
        master = spoiled.start()
        wait_for((spoiled.wrapped.folder / "last.squeue").exists, "the first listing")
        spoiled.wrapped.keep()
        spoiled.wrapped.plan("sbatch", ["unanswered", "ok", "killed-after", "ok", "unanswered", "ok"])
        with spoiled.wrapped.spoiled("replayed"):
            number = spoiled.create(master, 6, epochs=6, **spoiled.gate())
            # Nobody may conclude from any of these that a job is not there, however long they go on.
            until = time.monotonic() + QUIET
            while time.monotonic() < until:
                for lie in ("replayed", "empty", "truncated 500", "refuses Unable to contact slurm controller"):
                    lied(spoiled, lie)
            assert each_token_once(spoiled, 6)
        lied(spoiled, "strange", 3)
        lied(spoiled, "ok", 3)
        with spoiled.wrapped.spoiled("shortened", "2"):
            wait_for(
                lambda: "squeue's answers contradict each other" in spoiled.process.log.read_text(),
                "the contradiction in the log",
                120,
            )
        lied(spoiled, "truncated 1000", 3)
        lied(spoiled, "stale", 4)
        lied(spoiled, "ok", 3)
        spoiled.open()
        spoiled.nothing_is_lost_or_doubled(master, number, epochs=6)
        assert each_token_once(spoiled, 6)


def a_listing_that_hangs(cluster: Cluster) -> None:
    """It holds up nothing that needs none: trials end, and their end is known."""
    with site(cluster) as spoiled:
        master = spoiled.start()
        number = spoiled.create(master, 2, epochs=4, **spoiled.gate())
        spoiled.reports(master, number, 2, 2)
        with spoiled.wrapped.spoiled("hangs", "300"):
            hung = spoiled.wrapped.folder / "hung"
            wait_for(hung.exists, "a squeue that hangs")
            answered = len(spoiled.wrapped.calls("squeue"))
            spoiled.open()
            ended_as(master, number, "COMPLETED")
            assert len(spoiled.wrapped.calls("squeue")) == answered
        os.kill(int(hung.read_text()), signal.SIGKILL)
        spoiled.nothing_is_lost_or_doubled(master, number, epochs=4)


def an_old_listing_that_looks_new(cluster: Cluster) -> None:
    """Nothing shows that it is old. A submit whose answer was lost is then made again, and still runs once."""
    with site(cluster) as spoiled:
        master = spoiled.start()
        wait_for((spoiled.wrapped.folder / "last.squeue").exists, "the first listing")
        spoiled.wrapped.keep()
        spoiled.wrapped.plan("sbatch", ["unanswered"] * 3)
        with spoiled.wrapped.spoiled("stale"):
            number = spoiled.create(master, 3, epochs=3, options=["--begin=now+45"])
            wait_for(lambda: len(spoiled.wrapped.accepted()) == 6, "the second submits", 90)
        spoiled.nothing_is_lost_or_doubled(master, number, epochs=3)


def ends_that_no_listing_shows(cluster: Cluster) -> None:
    """As with a MinJobAge below the time between two looks: while the master looks, sleeps, and is away."""
    with site(cluster) as spoiled, spoiled.wrapped.spoiled("forgetful"):
        master = spoiled.start()
        number = spoiled.create(master, 4, epochs=8, deaf=True, **spoiled.gate())
        spoiled.reports(master, number, 4)
        with asleep(spoiled):
            spoiled.open()
            wait_for(lambda: trained(spoiled) == 4, "the last epoch of all")
        spoiled.nothing_is_lost_or_doubled(master, number, epochs=8)
        number = spoiled.create(master, 4, epochs=8, **spoiled.gate("another"))
        spoiled.reports(master, number, 4, 2)
        absent_until_all_have_left(spoiled, master, number, "another")
        spoiled.nothing_is_lost_or_doubled(spoiled.start(), number, epochs=8)


def exit_records_that_a_user_wrote(cluster: Cluster) -> None:
    with site(cluster) as spoiled:
        master = spoiled.start()
        number = spoiled.create(master, 6, epochs=6, **spoiled.gate())
        spoiled.reports(master, number, 6, 2)
        folders = absent_until_all_have_left(spoiled, master, number)
        trials = sorted(folders)
        records = [folders[trial] / "exit" / "0.json" for trial in trials]
        records[0].write_text("no JSON")
        with records[1].open("wb") as huge:
            huge.truncate(2**34)
        records[2].unlink()
        records[2].symlink_to("/etc/passwd")
        records[3].write_text('{"exit_code": [], "node_rank": "zero", "spool": 7}')
        with (folders[trials[4]] / "spool" / "core.jsonl").open("a") as spool:
            spool.write('{"t": 0, "kind": "status", "state": "a\\u0000b"}\n{"t": "x", "kind": "progress"}\n')
        # What lost its own word is run again, and nobody is charged; the others do not notice.
        again = dict.fromkeys(trials[:4], 2)
        spoiled.nothing_is_lost_or_doubled(spoiled.start(), number, epochs=6, attempts=again)


def a_full_disk_and_a_vanished_folder(cluster: Cluster) -> None:
    with small_disk(cluster, 16) as root, site(cluster, job_root=root) as spoiled:
        master = spoiled.start()
        ballast = root / "ballast"
        room = os.statvfs(root)
        ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - 2**14))
        number = spoiled.create(master, 6, epochs=20, **spoiled.gate())
        wait_for(
            lambda: all("No space left on device" in log_text(master, trial.id) for trial in master.trials(number)),
            "the word about the disk",
        )
        ballast.unlink()
        spoiled.reports(master, number, 6)
        for folder in list(spoiled.folders(master, number).values())[:2]:
            wait_for(lambda folder=folder: vanished(folder), "a folder to vanish")  # type: ignore[misc]
        spoiled.open()
        spoiled.nothing_is_lost_or_doubled(master, number, epochs=20)


def vanished(folder: Path) -> bool:
    """Remove a folder that somebody may be writing into."""
    try:
        shutil.rmtree(folder)
    except OSError:
        return not folder.exists()
    return True


TOGETHER: tuple[Day, ...] = (
    submits_that_go_wrong_in_every_way,
    a_master_that_is_killed_after_each_submit,
    listings_that_lie,
    a_listing_that_hangs,
    an_old_listing_that_looks_new,
    ends_that_no_listing_shows,
    exit_records_that_a_user_wrote,
    a_full_disk_and_a_vanished_folder,
)


@pytest.fixture(scope="module")
def days(request: pytest.FixtureRequest, slurm_cluster: Cluster) -> Iterator[dict[Day, Future[None]]]:
    """Those whose tests are wanted, begun at once."""
    wanted = [item.callspec.params.get("day") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(len(TOGETHER)) as threads:
        yield {day: threads.submit(day, slurm_cluster) for day in TOGETHER if day in wanted}


@pytest.mark.parametrize("day", TOGETHER, ids=lambda day: day.__name__)
def test_a_bad_day(day: Day, days: dict[Day, Future[None]]) -> None:
    days[day].result()


@pytest.fixture
def forgets_soon(slurm_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a MinJobAge of two seconds."""
    slurm_cluster.set_min_job_age(2)
    yield slurm_cluster
    slurm_cluster.start_controller()
    slurm_cluster.set_min_job_age()
    slurm_cluster.run("scontrol", "update", f"NodeName={','.join(slurm_cluster.layout.nodes)}", "State=RESUME")
    slurm_cluster.wait_for_nodes()


def test_a_controller_that_hangs_dies_and_loses_its_memory(forgets_soon: Cluster) -> None:
    with site(forgets_soon) as spoiled:
        master = spoiled.start()
        wait_for(master.pools, "the pools")
        forgets_soon.pause_controller()
        try:
            number = spoiled.create(master, 6, epochs=8, **spoiled.gate())
            wait_for(
                lambda: all("looking for it" in log_text(master, trial.id) for trial in master.trials(number)),
                "six submits without an answer",
            )
        finally:
            forgets_soon.resume_controller()
        spoiled.reports(master, number, 6)
        # It writes its state every few seconds; what it is killed without, Slurm itself starts again or forgets.
        save_state(forgets_soon, *jobs_of(master, number))
        forgets_soon.controller.kill()
        lied(spoiled, "ok", 1)
        forgets_soon.start_controller()
        spoiled.open()
        spoiled.nothing_is_lost_or_doubled(master, number, epochs=8)

        # An administrator ends all jobs while the master is away: only Slurm knows, which has to remember for so long.
        forgets_soon.set_min_job_age()
        number = spoiled.create(master, 4, epochs=100_000)
        spoiled.reports(master, number, 4)
        folders = spoiled.folders(master, number)
        names = f"--name={','.join(folder.name for folder in folders.values())}"
        jobs = jobs_of(master, number)
        spoiled.process.kill()
        forgets_soon.command("scancel", *jobs)
        wait_for(lambda: not forgets_soon.command("squeue", "-h", names).strip(), "the end of all jobs", 60)
        master = spoiled.start()
        ended_as(master, number, "CANCELED", 120)

        # Its state is lost, twice: nodes kill the jobs that it does not know, and numbers begin anew.
        loses_its_state(forgets_soon)
        lost = spoiled.create(master, 3, epochs=100_000)
        spoiled.reports(master, lost, 3)
        loses_its_state(forgets_soon)
        number = spoiled.create(master, 3, epochs=20, pause=0.5)
        spoiled.reports(master, number, 3)
        assert jobs_of(master, lost) & jobs_of(master, number)
        # What left no trace is not ended by that alone (only by 300 s of silence); ending it ends nobody else.
        assert {trial.state for trial in master.trials(lost)} == {"ACTIVE"}
        master.kill(lost)
        ended_as(master, lost, "CANCELED")
        spoiled.nothing_is_lost_or_doubled(master, number, epochs=20)


def save_state(cluster: Cluster, *jobs: str) -> None:
    """Wait until the controller has saved these jobs as they are now. It saves what was changed."""
    mark = f"saved-{time.time_ns()}"
    for job in jobs:
        cluster.command("scontrol", "update", f"JobId={job}", f"Comment={mark}")
    state = cluster.layout.run / "state" / "job_state"

    def saved() -> bool:
        try:
            return state.read_bytes().count(mark.encode()) >= len(jobs)
        except FileNotFoundError:  # it is being put in the place of the last one
            return False

    wait_for(saved, "the controller to save its state")


def loses_its_state(cluster: Cluster) -> None:
    cluster.stop_controller()
    for path in (cluster.layout.run / "state").glob("job_state*"):  # without it, `-c` too goes on counting
        path.unlink()
    cluster.controller.start(["slurmctld", "-D", "-c", "-f", str(cluster.layout.slurm_conf)], dict(os.environ))
    cluster.start_controller()
    cluster.wait_for_nodes()
    # Nodes kill the jobs that it does not know, and refuse a new one of such a number in the second of the kill. That
    # costs an attempt, but not always.
    time.sleep(2)


def jobs_of(master: Master, number: int) -> set[str]:
    """Slurm's numbers of an experiment's jobs."""
    tasks = [master.task(trial.task_id) for trial in master.trials(number)]
    return {str(allocation["jobId"]) for task in tasks for allocation in task["allocations"]}


def absent_until_all_have_left(spoiled: Site, master: Master, number: int, gate: str = "gate") -> dict[int, Path]:
    """Kill the master, open the gate and wait until the jobs have left Slurm by themselves; the folders that speak for
    them."""
    folders = spoiled.folders(master, number)
    names = f"--name={','.join(folder.name for folder in folders.values())}"
    spoiled.process.kill()
    spoiled.open(gate)
    # Runtimes wait half a minute for a master that is away, then leave their word on disk.
    wait_for(lambda: not spoiled.cluster.command("squeue", "-h", names).strip(), "the end of all jobs", 120)
    assert all((folder / "exit" / "0.json").exists() for folder in folders.values())
    return folders


@contextmanager
def asleep(spoiled: Site) -> Iterator[None]:
    """Inside, the master takes connections and answers nothing (SIGSTOP)."""
    os.kill(spoiled.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(spoiled.process.pid, signal.SIGCONT)


def trained(spoiled: Site) -> int:
    """How many jobs have reported their eighth epoch, on disk."""
    spools = spoiled.jobs.glob("*/spool/core.jsonl")
    return sum('"epochs":8' in path.read_text() for path in spools)


def each_token_once(spoiled: Site, jobs: int) -> bool:
    """Whether Slurm took so many jobs, each under another token."""
    accepted = spoiled.wrapped.accepted()
    assert len(accepted) == len({token for token, _ in accepted}), accepted
    return len(accepted) == jobs


def lied(spoiled: Site, lie: str, times: int = 2) -> None:
    """Let squeue answer so many questions in this way."""
    asked = len(spoiled.wrapped.calls("squeue"))
    how, _, value = lie.partition(" ")
    with spoiled.wrapped.spoiled(how, value):
        wait_for(lambda: len(spoiled.wrapped.calls("squeue")) >= asked + times, f"{times} answers that are {lie}", 120)
