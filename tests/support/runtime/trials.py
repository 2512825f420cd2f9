"""One trial in as many real jobs as it takes: each continues from what the one before has saved."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.process.runtime.test_whole_job import archive
from tests.support.runtime.jobs import StagedJob, make_work
from tests.support.runtime.master import FakeMaster

# Beside each script: `leave.at(step)` asks the job to leave, as the runtime does, or kills it, when the step is the one
# that the test has chosen. `place` is where the script calls.
LEAVE = """
import os, pathlib, signal

def at(step, place="step"):
    how, _, where = os.environ.get("LEAVE", "").partition(" ")
    if where != "%s %d" % (place, step) or os.environ.get("RANK", "0") != "0":
        return
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    (pathlib.Path(os.environ["TRAINMASTER_RUN_DIR"]) / "preempt").touch()

def digest(arrays):
    import hashlib, numpy
    print("WEIGHTS", hashlib.sha256(b"".join(numpy.asarray(each).tobytes() for each in arrays)).hexdigest(), flush=True)
"""


class Attempt:
    """A job that has ended."""

    def __init__(self, status: int, output: str, job: StagedJob, master: FakeMaster, how: str = "") -> None:
        self.status = status
        self.how = how  # it was interrupted: "ask" or "kill"
        self.job = job
        self.master = master
        self.lines = [
            line
            for stream in sorted(master.streams)
            for source in (None, "trainmaster")
            for line in master.lines(stream, source)
        ]
        self.output = output + "\n".join(self.lines)

    def printed(self, word: str) -> list[str]:
        """What stands behind `word`, in the lines that begin with it."""
        return [line[len(word) :].strip() for line in self.lines if line.startswith(word)]

    def metrics(self, group: str) -> list[tuple[int, dict[str, Any]]]:
        """The steps and the metrics of each report."""
        return [(m["steps_completed"], m["metrics"]) for m in self.master.kinds("metrics") if m["group"] == group]

    @property
    def checkpoints(self) -> list[Any]:
        return self.master.kinds("checkpoint")

    @property
    def left(self) -> bool:
        """Whether the training confirmed that it left before its end."""
        return bool(self.master.kinds("ack_preempt"))


class Trial:
    """One trial with its storage. `python`: one that has the framework. `ranks`: of each node; 1 without a launcher."""

    def __init__(
        self,
        stage: Any,
        folder: Path,
        script: str,
        *,
        python: str,
        ranks: int = 1,
        nodes: int = 1,
        environment: dict[str, str] | None = None,
        files: dict[str, str] | None = None,
        hparams: dict[str, Any] | None = None,
        searcher: dict[str, Any] | None = None,
        seed: int = 42,
        entrypoint: list[str] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        self._stage = stage
        self._store = folder
        self._files = {"train.py": script, "leave.py": LEAVE, **(files or {})}
        self.python, self.ranks, self.nodes = python, ranks, nodes
        self.environment = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **(environment or {})}
        self._hparams = hparams or {}
        self._searcher = searcher or {"name": "single", "metric": "eval_loss"}
        self._seed = seed
        self._config = {"name": "test", "searcher": self._searcher, **(config or {})}
        self._entrypoint = entrypoint or [
            python,
            *(("-m", "trainmaster.launchers.script", python) if ranks * nodes > 1 else ()),
            "train.py",
        ]
        self.attempts: list[Attempt] = []

    def stage(self, leave: str = "", **environment: str) -> tuple[StagedJob, FakeMaster]:
        """Stage the trial's next job. `leave`: "ask step 3" or "kill step 3", with the words of the script's calls."""
        latest = next((made["uuid"] for each in reversed(self.attempts) for made in reversed(each.checkpoints)), None)
        self._store.mkdir(exist_ok=True, parents=True)
        work = make_work(self._entrypoint)
        changes = {
            "trial": {
                **work["trial"],
                "hparams": self._hparams,
                "seed": self._seed,
                "run_id": len(self.attempts) + 1,
                "latest_checkpoint": latest,
            },
            "config": self._config,
            "environment": {**self.environment, "LEAVE": leave, **environment},
            "checkpoint_storage": {"type": "shared_fs", "host_path": str(self._store)},
            "num_nodes": self.nodes,
        }
        staged: tuple[StagedJob, FakeMaster] = self._stage(
            self._entrypoint, work=changes, context=archive(**self._files), slots=self.ranks * self.nodes
        )
        return staged

    def run(self, leave: str = "", *, decide: Any = None, **environment: str) -> Attempt:
        """Run the trial's next job to its end."""
        job, master = self.stage(leave, **environment)
        if decide is not None:
            master.decide = decide
        nodes = [job.start(node_rank=rank, num_nodes=self.nodes) for rank in range(self.nodes)]
        return self.ended(job, master, nodes, leave.partition(" ")[0])

    def ended(self, job: StagedJob, master: FakeMaster, nodes: list[subprocess.Popen[str]], how: str = "") -> Attempt:
        """Wait for the end of a job's nodes."""
        output = "".join(node.communicate(timeout=300)[0] for node in nodes)
        attempt = Attempt(max(node.returncode for node in nodes), output, job, master, how)
        self.attempts.append(attempt)
        return attempt

    def through(self, *ways: str) -> Attempt:
        """Run to the end, with one job for each of these ways to leave before. The last job, which was complete."""
        for way in ways:
            attempt = self.run(way)
            asked = way.startswith("ask")
            assert (attempt.status == 0) is asked, attempt.output
            assert attempt.left is asked, attempt.output
            assert not attempt.printed("WEIGHTS"), attempt.output
        attempt = self.run()
        assert attempt.status == 0, attempt.output
        assert not attempt.left
        return attempt

    def metrics(self, group: str) -> list[tuple[int, dict[str, Any]]]:
        """The reports of all jobs."""
        return [report for each in self.attempts for report in each.metrics(group)]
