"""The scripts of a job: sound shell, and what they do, with stand-ins for PBS's commands on this machine.

On a real PBS they are tested by test_jobs.py.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.templates import render

START = """
echo "rank $TRAINMASTER_NODE_RANK of $TRAINMASTER_NUM_NODES on $TRAINMASTER_NODE_NAME in $TRAINMASTER_JOB_ID" \
    "slots ${TRAINMASTER_SLOT_IDS:-none} devices ${CUDA_VISIBLE_DEVICES:-none} end ${TRAINMASTER_END_TIME:-none}"
trap 'echo "$TRAINMASTER_NODE_RANK" >>told; exit 0' USR2
trap 'echo "$TRAINMASTER_NODE_RANK" >>ended; exit 143' TERM
: >"ready.$TRAINMASTER_NODE_RANK"
[ ! -e "status.$TRAINMASTER_NODE_RANK" ] || exit "$(cat "status.$TRAINMASTER_NODE_RANK")"
[ -e wait ] || exit 0
for _ in {1..200}; do sleep 0.1 & wait "$!"; done
exit 99
"""
TMRSH = '#!/bin/bash\necho "$1" >>{log}\nshift\nPBS_NODENUM=1 exec env --default-signal setsid --wait "$@"\n'
QSTAT = "#!/bin/bash\ncat {said}\nexit $(cat {status})\n"


def replace(path: Path, text: str) -> None:
    """Write a file in one step: the shell of an earlier job may be in the middle of reading the last one."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.rename(path)


class Site:
    """A folder of stand-ins for PBS's commands, and a job folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "it's the $HOME of jobs"
        self.bin = folder / "bin"
        self.log, self.said, self.status = folder / "tmrsh", folder / "said", folder / "status"
        self.nodefile = folder / "nodes"
        # What a job leaves behind is found by its id: each test needs one of its own.
        self.job_id = f"7.{secrets.token_hex(6)}"
        for path in (self.folder, self.bin):
            path.mkdir()
        self.program("pbs_tmrsh", TMRSH.format(log=self.log))
        self.program("qstat", QSTAT.format(said=self.said, status=self.status))

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def job(
        self, *hosts: str, job_id: str | None = None, ways: tuple[str, ...] = ("pbs_tmrsh",), **values: object
    ) -> subprocess.Popen[bytes]:
        common = {
            "job_folder": self.folder,
            "bash": "/bin/bash",
            "path": "/usr/bin:/bin",
            "pbs_bin": str(self.bin),
            "variables": [("SITE", "a 'b' $c")],
        }
        values = {"walltime": 0, "limit_is_chosen": False, "host_start": list(ways), "slots_each": 2, **values}
        replace(self.folder / "job.sh", render("pbs_job.sh.j2", **common, **values))
        replace(self.folder / "host.sh", render("pbs_host.sh.j2", **common, **values))
        replace(self.folder / "start.sh", START)
        replace(self.nodefile, "".join(f"{host}\n" for host in hosts))
        environment = {"PBS_JOBID": job_id or self.job_id, "PBS_NODEFILE": str(self.nodefile), "PBS_NODENUM": "0"}
        words = ["/bin/bash", str(self.folder / "job.sh")]
        return subprocess.Popen(words, env=environment, start_new_session=True)

    @property
    def output(self) -> str:
        return (self.folder / "output.txt").read_text()

    def has(self, *names: str) -> bool:
        return all((self.folder / name).exists() for name in names)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def wait_for(condition: Callable[[], object], what: str, retries: float = 60.0) -> None:
    deadline = time.monotonic() + retries
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {retries:g} s"
        time.sleep(0.02)


@pytest.mark.parametrize("template", ["pbs_job.sh.j2", "pbs_host.sh.j2"])
def test_the_scripts_are_sound_shell(template: str) -> None:
    text = render(
        template,
        job_folder="/jobs/it's $HOME",
        bash="/bin/bash",
        path="/usr/bin",
        pbs_bin="/opt/pbs/bin",
        variables=[("A", "$(b)'c")],
        walltime=60,
        limit_is_chosen=True,
        host_start=["pbs_tmrsh", "ssh"],
        slots_each=4,
    )
    done = subprocess.run(["/bin/bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_job_on_one_host(site: Site) -> None:
    assert site.job("n1", walltime=3600).wait(60) == 0
    words = site.output.split()
    assert words[:8] == ["rank", "0", "of", "1", "on", "n1", "in", site.job_id]
    assert abs(int(words[-1]) - time.time() - 3600) < 60
    assert not site.log.exists()


@pytest.mark.parametrize(
    ("said", "walltime", "seconds"),
    [
        ("Job Id: 7.s\n    Resource_List.max_walltime = 12:00:00\n    Resource_List.walltime = 08:09:10\n", 60, 29350),
        ("Job Id: 7.s\n    Resource_List.ncpus = 1\n", 3600, 3600),
        ("qstat: cannot connect to server\n", 0, None),
    ],
)
def test_a_limit_that_pbs_has_chosen(site: Site, said: str, walltime: int, seconds: int | None) -> None:
    """Within min_walltime and max_walltime, or by a hook."""
    site.said.write_text(said)
    site.status.write_text("0")
    assert site.job("n1", walltime=walltime, limit_is_chosen=True).wait(60) == 0
    end = site.output.split()[-1]
    assert end == "none" if seconds is None else abs(int(end) - time.time() - seconds) < 60


def test_the_status_of_one_host_is_the_jobs(site: Site) -> None:
    (site.folder / "status.0").write_text("42")
    assert site.job("n1").wait(60) == 42


def test_each_host_gets_its_rank(site: Site) -> None:
    assert site.job("n1", "n2", "n3").wait(60) == 0
    lines = sorted(line for line in site.output.splitlines() if line.startswith("rank"))
    assert [line.split(" slots")[0] for line in lines] == [
        f"rank {rank} of 3 on n{rank + 1} in {site.job_id}" for rank in range(3)
    ]
    assert all("slots none" in line for line in lines)
    assert sorted(site.log.read_text().split()) == ["n2", "n2", "n3"]  # one try, and the two parts


def test_ranks_on_one_host_share_its_slots(site: Site) -> None:
    assert site.job("n1", "n1").wait(60) == 0
    lines = sorted(line for line in site.output.splitlines() if line.startswith("rank"))
    assert "slots [0, 1]" in lines[0]
    assert "slots [2, 3]" in lines[1]


def test_the_first_part_that_fails_ends_the_job(site: Site) -> None:
    (site.folder / "status.1").write_text("3")
    (site.folder / "wait").touch()
    assert site.job("n1", "n2", "n3").wait(40) == 3
    assert "the part of n2 (rank 1) ended with status 3" in site.output
    assert sorted((site.folder / "ended").read_text().split()) == ["0", "2"]


@pytest.mark.parametrize(("number", "file"), [(signal.SIGUSR2, "told"), (signal.SIGTERM, "ended")])
def test_a_signal_reaches_every_host(site: Site, number: signal.Signals, file: str) -> None:
    (site.folder / "wait").touch()
    job = site.job("n1", "n2", "n3")
    wait_for(lambda: site.has("ready.0", "ready.1", "ready.2"), "the start of all parts")
    os.killpg(job.pid, number)  # as PBS does: every process of the session on the first host
    job.wait(40)
    assert sorted((site.folder / file).read_text().split()) == ["0", "1", "2"]


def test_a_host_that_cannot_be_reached_is_said(site: Site) -> None:
    site.program("pbs_tmrsh", "#!/bin/sh\necho not a node of this job >&2\nexit 255\n")
    assert site.job("n1", "n2", ways=("pbs_tmrsh", "nothing")).wait(60) == 75
    assert "nothing can be started on n2" in site.output


def test_the_next_way_is_tried(site: Site) -> None:
    site.program("pbs_tmrsh", "#!/bin/sh\nexit 255\n")
    # What pbsdsh prints of statuses, and that its own is always 0, is OpenPBS's.
    site.program(
        "pbsdsh",
        '#!/bin/bash\nshift 3\nPBS_NODENUM=1 setsid --wait "$@"\ncode=$?\n'
        '[ "$code" = 0 ] || echo "pbsdsh: task 0x00000000 exit status $code"\n',
    )
    (site.folder / "status.1").write_text("5")
    assert site.job("n1", "n2", ways=("pbs_tmrsh", "pbsdsh")).wait(40) == 5


# -- two jobs of one token


def test_a_second_job_of_the_token_leaves_while_the_first_lives(site: Site) -> None:
    (site.folder / ".pbs").mkdir()
    (site.folder / ".pbs/first").symlink_to("5.server")
    site.said.write_text("Job Id: 5.server\n    job_state = R\n")
    site.status.write_text("0")
    assert site.job("n1").wait(60) == 0
    assert f"job 5.server runs under the same token; {site.job_id} leaves" in site.output
    assert "rank" not in site.output


@pytest.mark.parametrize(("status", "said"), [("153", "qstat: Unknown Job Id"), ("35", "qstat: Job has finished")])
def test_a_job_follows_one_that_has_ended(site: Site, status: str, said: str) -> None:
    (site.folder / ".pbs").mkdir()
    (site.folder / ".pbs/first").symlink_to("5.server")
    site.said.write_text(said)
    site.status.write_text(status)
    assert site.job("n1").wait(60) == 0
    assert "rank 0" in site.output
    assert os.readlink(site.folder / ".pbs/after.5.server") == site.job_id


def test_only_one_of_many_follows(site: Site) -> None:
    (site.folder / ".pbs").mkdir()
    (site.folder / ".pbs/first").symlink_to("5.server")
    # 5 has ended; everybody else lives.
    site.program("qstat", '#!/bin/sh\n[ "$2" = 5.server ] && exit 35\necho "job_state = R"\n')
    (site.folder / "wait").touch()
    jobs = [site.job("n1", job_id=f"{number}{site.job_id}") for number in range(6)]
    wait_for(lambda: sum(job.poll() is not None for job in jobs) == 5 and site.has("ready.0"), "all but one to leave")
    (last,) = [job for job in jobs if job.poll() is None]
    os.killpg(last.pid, signal.SIGUSR2)
    assert last.wait(60) == 0
    assert site.output.count("rank 0") == 1


def test_a_job_that_pbs_starts_again_is_itself(site: Site) -> None:
    assert site.job("n1").wait(60) == 0
    assert site.job("n1").wait(60) == 0
    assert site.output.count("rank 0") == 2


# -- what a job leaves behind


def test_processes_left_by_training_are_ended(site: Site) -> None:
    job = site.job("n1")
    assert job.wait(60) == 0
    # In a session of its own, as the training is; it carries the job's mark.
    left = subprocess.Popen(["sleep", "60"], env={"PBS_JOBID": site.job_id}, start_new_session=True)
    other = subprocess.Popen(["sleep", "60"], env={"PBS_JOBID": f"7{site.job_id}"}, start_new_session=True)
    try:
        assert left.wait(60) == -signal.SIGTERM
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()
