"""The conformance tests: each checks one promise of the contract in `trainmaster.dispatchers.base`."""

from __future__ import annotations

import json
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from trainmaster.dispatchers.base import (
    Ambiguous,
    BindMount,
    ContainerSpec,
    Dispatcher,
    JobRef,
    JobSpec,
    JobState,
    Observation,
    Rejected,
    Setup,
    Signal,
    StagedFile,
    StreamPosition,
    Unreachable,
)
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.conformance.faults import WORD, Faults
from trainmaster.plugins import DISPATCHERS, faults_of

MakeSpec = Callable[..., JobSpec]


class DispatcherConformance:
    """Subclass it, and supply the fixtures `setup` and `dispatcher` in the class, the module or a conftest."""

    pool: ClassVar[str] = "default"
    patience: ClassVar[float] = 60.0  # seconds within which an idle cluster starts, ends or cancels a small job
    container: ClassVar[ContainerSpec] = ContainerSpec()

    @pytest.fixture
    def faults(self) -> Faults:
        """Faults that the tests inject; override it with those that your cluster allows."""
        return Faults()

    @pytest.fixture
    def make_dispatcher(self, dispatcher: Dispatcher, setup: Setup) -> Callable[[], Dispatcher]:
        """Create the dispatcher of a restarted master; override it when yours takes more than a Setup."""
        return lambda: type(dispatcher)(setup)  # type: ignore[call-arg]

    @pytest.fixture
    def make_spec(self, dispatcher: Dispatcher, setup: Setup) -> Iterator[MakeSpec]:
        """Create specs with a new token each; at the end all their jobs are cancelled and forgotten."""
        made: set[str] = set()
        slot_type = {pool.name: pool.slot_type for pool in dispatcher.pools()}[self.pool]

        def make(program: str = programs.ENDS_WELL, **changes: object) -> JobSpec:
            token = f"{setup.prefix}{secrets.token_hex(6)}"
            made.add(token)
            spec = JobSpec(
                token=token,
                allocation_id=f"1.1.{token}",
                pool=self.pool,
                slots=1,
                slot_type=slot_type,
                container=self.container,
                files=programs.runtime(program),
            )
            return replace(spec, **changes)  # type: ignore[arg-type]

        yield make
        jobs = [job for job in dispatcher.observe().jobs if job.token in made]
        dispatcher.cancel([JobRef(job.token, job.job_id, job.cluster) for job in jobs])
        self._wait(
            lambda: all(job.state.terminal for job in dispatcher.observe().jobs if job.token in made),
            "the end of all jobs of the test",
        )
        for token in made:
            dispatcher.forget(token)

    @pytest.fixture
    def job_root(self, setup: Setup) -> Path:
        """Return the folder of job folders; override it if nodes have folders of their own."""
        return setup.job_root

    # -- querying the cluster -------------------------------------------------------------------------

    def test_probe_names_the_scheduler_and_its_version(self, dispatcher: Dispatcher) -> None:
        answer = dispatcher.probe()
        assert answer.scheduler
        assert answer.version
        assert answer.poll_interval > 0
        assert not [problem.text for problem in answer.problems if problem.fatal]

    def test_it_declares_what_the_master_asks_of_a_plugin(self, dispatcher: Dispatcher) -> None:
        assert list(faults_of(DISPATCHERS, type(dispatcher))) == []

    def test_pools_have_slots(self, dispatcher: Dispatcher) -> None:
        pools = {pool.name: pool for pool in dispatcher.pools()}
        assert self.pool in pools
        assert pools[self.pool].slots_total >= 1
        assert pools[self.pool].up
        for pool in pools.values():
            assert 0 <= pool.slots_used <= pool.slots_total

    def test_check_has_nothing_against_a_good_job(self, dispatcher: Dispatcher, make_spec: MakeSpec) -> None:
        assert list(dispatcher.check(make_spec())) == []

    def test_check_names_what_can_never_run(self, dispatcher: Dispatcher, make_spec: MakeSpec) -> None:
        missing = dispatcher.check(make_spec(pool="no-such-pool"))
        assert any("no-such-pool" in sentence for sentence in missing)
        too_many = dispatcher.check(make_spec(slots=1_000_003, slots_per_node=1_000_003))
        assert any("1000003" in sentence for sentence in too_many)
        runtime = dispatcher.check(make_spec(container=ContainerSpec(runtime="no-such-runtime")))
        assert any("no-such-runtime" in sentence for sentence in runtime)
        assert not [job for job in dispatcher.observe().jobs if not job.state.terminal]

    # -- a job's way -----------------------------------------------------------------------------------

    def test_a_job_runs_and_ends(self, dispatcher: Dispatcher, make_spec: MakeSpec) -> None:
        before = time.time()
        spec = make_spec()
        ref = dispatcher.submit(spec)
        assert ref.token == spec.token
        assert ref.job_id
        end = self._ended(dispatcher, spec)
        assert end.state is JobState.COMPLETED
        assert end.job_id == ref.job_id
        assert end.raw_state
        assert end.submitted_at is not None
        assert before - 2 <= end.submitted_at <= time.time() + 2
        self._wait(
            lambda: "hello from the job" in (dispatcher.collect(spec.token).output_tail or ""), "the job's output"
        )
        path = dispatcher.log_path(spec.token)
        assert path is None or "hello from the job" in path.read_text()

    def test_the_status_of_the_job_is_seen(self, dispatcher: Dispatcher, make_spec: MakeSpec) -> None:
        files = {**programs.runtime(programs.ENDS_WITH), "status": StagedFile(b"42")}
        spec = make_spec(files=files)
        ref = dispatcher.submit(spec)
        end = self._ended(dispatcher, spec)
        assert end.state is JobState.FAILED
        assert end.exit_code == 42
        explanation = dispatcher.explain(ref)
        assert "42" in explanation.text
        assert explanation.exit_code == 42

    def test_files_are_staged_for_the_owner_alone(
        self, dispatcher: Dispatcher, make_spec: MakeSpec, job_root: Path
    ) -> None:
        files = {
            **programs.runtime(programs.TELLS),
            "secrets/token": StagedFile(b"s3cret"),
            "tools/run": StagedFile(b"#!/bin/sh\n", 0o700),
        }
        spec = make_spec(files=files)
        dispatcher.submit(spec)
        self._ended(dispatcher, spec)
        folder = job_root / spec.token
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert (folder / "secrets/token").read_bytes() == b"s3cret"
        assert stat.S_IMODE((folder / "secrets/token").stat().st_mode) == 0o600
        assert stat.S_IMODE((folder / "tools/run").stat().st_mode) == 0o700

    def test_what_the_job_left_is_collected(
        self, dispatcher: Dispatcher, make_spec: MakeSpec, setup: Setup, job_root: Path
    ) -> None:
        spec = make_spec(programs.TELLS)
        dispatcher.submit(spec)
        self._ended(dispatcher, spec)
        self._wait(lambda: dispatcher.collect(spec.token).exits, "the exit record")
        assert dispatcher.collect(spec.token).streams == {}
        remains = dispatcher.collect(spec.token, places={})
        facts = json.loads(remains.exits[0])
        assert facts["argv"] == [str(job_root / spec.token)]
        assert facts["cwd"] == str(job_root / spec.token)
        assert {name: piece.content for name, piece in remains.streams.items()} == {"core": b'{"n": 1}\n{"n": 2}\n'}
        behind = dispatcher.collect(spec.token, places={"core": StreamPosition(1, -1)}).streams["core"]
        assert (behind.content, behind.end, behind.more) == (b'{"n": 2}\n', StreamPosition(2, 18), False)
        dispatcher.forget(spec.token)
        assert not (setup.job_root / spec.token).exists()
        dispatcher.forget(spec.token)
        assert dispatcher.collect(spec.token).exits == {}

    def test_the_masters_environment_stays_outside(
        self,
        dispatcher: Dispatcher,
        make_spec: MakeSpec,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name in ("CONDA_PREFIX", "SLURM_CPU_BIND", "SBATCH_PARTITION", "MASTER_DATABASE_PASSWORD"):
            monkeypatch.setenv(name, "leaked")
        spec = make_spec(programs.TELLS)
        dispatcher.submit(spec)
        self._ended(dispatcher, spec)
        self._wait(lambda: dispatcher.collect(spec.token).exits, "the exit record")
        environment = json.loads(dispatcher.collect(spec.token).exits[0])["environment"]
        assert "leaked" not in environment.values()

    def test_each_job_has_its_own_folder_for_temporary_files(self, dispatcher: Dispatcher, make_spec: MakeSpec) -> None:
        spec = make_spec(programs.TELLS)
        dispatcher.submit(spec)
        self._ended(dispatcher, spec)
        self._wait(lambda: dispatcher.collect(spec.token).exits, "the exit record")
        private = Path(json.loads(dispatcher.collect(spec.token).exits[0])["tmp"])
        if self.container.runtime == "none":
            assert private != Path("/tmp")  # noqa: S108
            self._wait(lambda: not private.exists(), "the removal of the private folder")
        else:
            assert private == Path("/tmp")  # noqa: S108

    # -- many jobs -------------------------------------------------------------------------------------

    def test_one_snapshot_shows_all_jobs(self, dispatcher: Dispatcher, make_spec: MakeSpec) -> None:
        specs = [make_spec(slots=0) for _ in range(5)]
        with ThreadPoolExecutor(5) as threads:
            refs = {ref.token: ref for ref in threads.map(dispatcher.submit, specs)}
        before = time.time()
        snapshot = dispatcher.observe()
        assert before - 1 <= snapshot.taken_at <= time.time() + 1
        job_ids = {job.token: job.job_id for job in snapshot.jobs}
        assert {token: job_ids.get(token) for token in refs} == {token: ref.job_id for token, ref in refs.items()}

    def test_the_same_token_never_runs_twice_at_once(
        self, dispatcher: Dispatcher, make_spec: MakeSpec, job_root: Path
    ) -> None:
        spec = make_spec(programs.ALONE)
        first, second = dispatcher.submit(spec), dispatcher.submit(spec)
        listed = {job.job_id for job in dispatcher.observe().jobs if job.token == spec.token}
        assert {first.job_id, second.job_id} == listed

        def all_ended() -> bool:
            jobs = [job for job in dispatcher.observe().jobs if job.token == spec.token]
            return all(job.state.terminal for job in jobs)

        self._wait(all_ended, "the end of every job of the token")
        folder = job_root / spec.token
        assert not (folder / "overlap").exists()
        assert (folder / "runs").read_text().startswith("x")

    def test_a_token_of_another_master_is_refused(self, dispatcher: Dispatcher, make_spec: MakeSpec) -> None:
        with pytest.raises(Rejected):
            dispatcher.submit(make_spec(token="someone-elses-job"))  # noqa: S106

    # -- ending and signalling -------------------------------------------------------------------------

    def test_a_running_job_is_cancelled(self, dispatcher: Dispatcher, make_spec: MakeSpec, job_root: Path) -> None:
        spec = make_spec(programs.WAITS)
        ref = dispatcher.submit(spec)
        self._wait((job_root / spec.token / "ready").exists, "the start of the job")
        dispatcher.cancel([ref])
        end = self._ended(dispatcher, spec)
        assert end.state is JobState.CANCELLED
        assert "cancel" in end.explanation.lower()
        assert "cancel" in dispatcher.explain(ref).text.lower()
        dispatcher.cancel([ref])

    def test_a_job_that_does_not_listen_is_ended(
        self, dispatcher: Dispatcher, make_spec: MakeSpec, job_root: Path
    ) -> None:
        spec = make_spec(programs.STUBBORN)
        ref = dispatcher.submit(spec)
        self._wait((job_root / spec.token / "ready").exists, "the start of the job")
        dispatcher.cancel([ref])
        assert self._ended(dispatcher, spec).state is JobState.CANCELLED

    @pytest.mark.parametrize(("signal", "name"), [(Signal.PREEMPT, "SIGUSR2"), (Signal.TERMINATE, "SIGTERM")])
    def test_a_signal_reaches_the_runtime(
        self, dispatcher: Dispatcher, make_spec: MakeSpec, job_root: Path, signal: Signal, name: str
    ) -> None:
        spec = make_spec(programs.WAITS)
        ref = dispatcher.submit(spec)
        folder = job_root / spec.token
        self._wait((folder / "ready").exists, "the start of the job")
        dispatcher.signal([ref], signal)
        self._wait((folder / "told").exists, f"the job's answer to {name}")
        assert name in (folder / "told").read_text().split()
        assert self._ended(dispatcher, spec).state is JobState.COMPLETED

    def test_an_unknown_job_is_no_error(self, dispatcher: Dispatcher, setup: Setup) -> None:
        ghost = JobRef(f"{setup.prefix}ghost", "99999999")
        dispatcher.cancel([ghost])
        dispatcher.cancel([])
        dispatcher.signal([ghost], Signal.PREEMPT)
        assert dispatcher.explain(ghost).text
        assert dispatcher.explain(ghost).state is JobState.UNKNOWN
        assert dispatcher.collect(ghost.token).exits == {}
        dispatcher.forget(ghost.token)
        assert ghost.token not in {job.token for job in dispatcher.observe().jobs}

    # -- failures --------------------------------------------------------------------------------------

    def test_a_master_that_was_started_again_finds_its_jobs(
        self, dispatcher: Dispatcher, make_dispatcher: Callable[[], Dispatcher], make_spec: MakeSpec, job_root: Path
    ) -> None:
        running, ended = make_spec(programs.WAITS), make_spec(programs.TELLS)
        ref = dispatcher.submit(running)
        dispatcher.submit(ended)
        self._wait((job_root / running.token / "ready").exists, "the start of the job")
        self._ended(dispatcher, ended)
        again = make_dispatcher()
        try:
            jobs = {job.token: job for job in again.observe().jobs if job.token in (running.token, ended.token)}
            assert jobs[running.token].job_id == ref.job_id
            assert not jobs[running.token].state.terminal
            assert jobs[ended.token].state is JobState.COMPLETED
            self._wait(lambda: again.collect(ended.token).exits, "the exit record")
            again.cancel([ref])
            assert self._ended(again, running).state is JobState.CANCELLED
            again.forget(running.token)
            assert again.collect(running.token).exits == {}
        finally:
            again.close()

    def test_a_cluster_that_is_away_is_told_apart_from_jobs_that_are_gone(
        self, dispatcher: Dispatcher, faults: Faults, make_spec: MakeSpec, job_root: Path
    ) -> None:
        if faults.away is None:
            pytest.skip("nothing between this dispatcher and its jobs can be away")
        spec, later = make_spec(programs.WAITS), make_spec()
        ref = dispatcher.submit(spec)
        self._wait((job_root / spec.token / "ready").exists, "the start of the job")
        with faults.away(), ThreadPoolExecutor(4) as threads:  # in parallel: each may try for long
            answers = [
                threads.submit(work)
                for work in (
                    dispatcher.observe,
                    lambda: dispatcher.submit(later),
                    lambda: dispatcher.cancel([ref]),
                    lambda: dispatcher.explain(ref),
                )
            ]
            for answer in answers:
                assert isinstance(answer.exception(), Unreachable | Ambiguous), answer.exception()
            assert isinstance(answers[0].exception(), Unreachable)
        self._wait(lambda: self._seen(dispatcher, spec), "the job, after the cluster came back")
        assert not self._seen(dispatcher, spec)[0].state.terminal

    def test_a_submit_without_an_answer_is_ambiguous_and_its_job_is_found(
        self, dispatcher: Dispatcher, faults: Faults, make_spec: MakeSpec
    ) -> None:
        if faults.unanswered is None:
            pytest.skip("the answer to a submit cannot be lost here")
        spec = make_spec(programs.WAITS)
        dispatcher.check(spec)  # makes the queries that precede a submit now
        with faults.unanswered(), pytest.raises(Ambiguous) as caught:
            dispatcher.submit(spec)
        assert caught.value.token == spec.token
        self._wait(lambda: self._seen(dispatcher, spec), "the job whose submit had no answer")
        assert len(self._seen(dispatcher, spec)) == 1

    def test_a_purged_job_is_absent_and_its_folder_still_speaks(
        self, dispatcher: Dispatcher, faults: Faults, make_spec: MakeSpec
    ) -> None:
        if faults.purge is None:
            pytest.skip("this scheduler forgets no job whose folder exists")
        spec = make_spec(programs.TELLS)
        ref = dispatcher.submit(spec)
        self._ended(dispatcher, spec)
        faults.purge(ref)
        assert self._seen(dispatcher, spec) == []
        assert dispatcher.explain(ref).text
        self._wait(lambda: dispatcher.collect(spec.token).exits, "the exit record")

    def test_an_unknown_word_is_handed_on_as_unknown(
        self, dispatcher: Dispatcher, faults: Faults, make_spec: MakeSpec, job_root: Path
    ) -> None:
        if faults.strange is None:
            pytest.skip("this dispatcher reads no state words of another program")
        spec = make_spec(programs.WAITS)
        dispatcher.submit(spec)
        self._wait((job_root / spec.token / "ready").exists, "the start of the job")
        self._running(dispatcher, spec)
        with faults.strange():
            (job,) = self._seen(dispatcher, spec)
            assert (job.state, job.raw_state) == (JobState.UNKNOWN, WORD)
        (job,) = self._seen(dispatcher, spec)
        assert job.state is JobState.RUNNING

    def test_noise_around_an_answer_is_not_taken_for_it(
        self, dispatcher: Dispatcher, faults: Faults, make_spec: MakeSpec, job_root: Path
    ) -> None:
        if faults.noisy is None:
            pytest.skip("this dispatcher reads no text of another program")
        with faults.noisy():
            spec = make_spec(programs.WAITS)
            ref = dispatcher.submit(spec)
            self._wait((job_root / spec.token / "ready").exists, "the start of the job")
            assert self._running(dispatcher, spec).job_id == ref.job_id
            assert {pool.name for pool in dispatcher.pools()} >= {self.pool}
            dispatcher.cancel([ref])
            assert self._ended(dispatcher, spec).state is JobState.CANCELLED

    # -- bad specs -------------------------------------------------------------------------------------

    @pytest.mark.parametrize("name", ["../outside", "{root}/outside", "a/../../outside"])
    def test_a_file_outside_the_job_folder_is_refused(
        self, dispatcher: Dispatcher, make_spec: MakeSpec, setup: Setup, name: str
    ) -> None:
        # A dispatcher that fails here writes the file, so its target must be harmless.
        spec = make_spec(files={name.format(root=setup.job_root): StagedFile(b"x")})
        with pytest.raises(Rejected):
            dispatcher.submit(spec)
        assert not (setup.job_root / "outside").exists()

    def test_control_characters_are_refused(self, dispatcher: Dispatcher, make_spec: MakeSpec) -> None:
        if self.container.runtime == "none":
            pytest.skip("without a container no user value reaches the script")
        bind = BindMount("/etc\n#SBATCH --nodes=2", "/mnt")
        with pytest.raises(Rejected):
            dispatcher.submit(make_spec(container=replace(self.container, binds=(bind,))))

    @pytest.mark.parametrize("token", ["", "../up", "1digit", "a" * 65, "with blank", "line\nend"])
    def test_a_bad_token_is_refused(self, dispatcher: Dispatcher, make_spec: MakeSpec, token: str) -> None:
        with pytest.raises(Rejected):
            dispatcher.submit(replace(make_spec(), token=token))
        with pytest.raises(Rejected):
            dispatcher.forget(token)

    # -- waiting ---------------------------------------------------------------------------------------

    @staticmethod
    def _seen(dispatcher: Dispatcher, spec: JobSpec) -> list[Observation]:
        return [job for job in dispatcher.observe().jobs if job.token == spec.token]

    def _running(self, dispatcher: Dispatcher, spec: JobSpec) -> Observation:
        """Wait until the job is observed running; a node may report the start seconds after the program has begun."""
        observations: list[Observation] = []

        def runs() -> bool:
            observations[:] = [job for job in self._seen(dispatcher, spec) if job.state is JobState.RUNNING]
            return bool(observations)

        self._wait(runs, f"the scheduler's report that {spec.token} runs")
        (job,) = observations
        return job

    def _ended(self, dispatcher: Dispatcher, spec: JobSpec) -> Observation:
        """Wait for the end of a job and return its last observation; its state must not move backwards."""
        last: list[Observation] = []

        def over() -> bool:
            for job in dispatcher.observe().jobs:
                if job.token == spec.token:
                    assert not last or job.state.rank >= last[-1].state.rank or job.state.rank < 0
                    last.append(job)
            return bool(last) and last[-1].state.terminal

        self._wait(over, f"the end of {spec.token}")
        return last[-1]

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + self.patience
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {self.patience:g} s"
            time.sleep(0.1)
