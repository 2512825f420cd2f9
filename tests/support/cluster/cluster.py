"""A real Slurm cluster on this one machine: controller, four nodes with two fake GPUs each, no accounting.

Everything is bound to 127.0.0.1 and lives in the run folder; /etc/slurm and /run/munge are not touched.
`SLURM_CONF` in the environment is all that a client needs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.cluster import configuration, packages, users
from tests.support.cluster.daemons import Daemon, started_at, wait_until
from tests.support.cluster.layout import Layout

MEMORY_CONTROLLER = Path("/sys/fs/cgroup/memory")


class Cluster:
    """One test cluster, up or down. Several processes may use it; starts and stops are locked."""

    way_in: tuple[str, ...] = ()  # what stands before the commands of a Slurm that is not this machine's own

    def __init__(self, layout: Layout | None = None, profile: configuration.Profile | None = None) -> None:
        self.layout = layout or Layout.from_environment()
        self.profile = profile or configuration.Profile()

    # -- life ------------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in its environment to talk to this cluster."""
        return {"SLURM_CONF": str(self.layout.slurm_conf)}

    def up(self, min_job_age: int = configuration.MIN_JOB_AGE) -> None:
        """Install what is missing, start what is not running, and wait until every node can take jobs."""
        if os.geteuid() != 0:
            raise packages.Unavailable("the test cluster needs root (slurmd starts jobs of other users)")
        packages.install(packages.SLURM)
        with self._lock():
            users.ensure_users()
            self._write_files(min_job_age)
            self._munged().start(
                [
                    "munged",
                    "--foreground",
                    f"--socket={self.layout.munge_socket}",
                    f"--key-file={self.layout.run}/munge/key",
                    f"--seed-file={self.layout.run}/munge/seed",
                    f"--pid-file={self.layout.run}/munge/own.pid",
                    f"--log-file={self.layout.log('munged')}",
                ],
                _root_environment({}),
            )
            wait_until(self.layout.munge_socket.exists, 60, "munged's socket")
            self._start_services()
            self.start_controller()
            for node in self.layout.nodes:
                self.start_node(node)
            self.wait_for_nodes()

    def down(self) -> None:
        """End all jobs and daemons of this cluster. The run folder's configuration and logs stay."""
        if not self.layout.run.exists():
            return
        with self._lock():
            if self.controller.pid() is not None:
                self.resume_controller()
                with contextlib.suppress(TimeoutError, subprocess.SubprocessError):
                    self.drain(seconds=20)
            self.controller.stop()
            for node in self.layout.nodes:
                self._end_job_processes(node)
                self.node_daemon(node).stop()
            for daemon in reversed(self.services()):
                daemon.stop()
            self._munged().stop()

    def status(self) -> dict[str, str]:
        """Daemon name -> "up (pid N)" or "down", and "nodes" -> what sinfo says."""
        daemons = [
            self._munged(),
            *self.services(),
            self.controller,
            *(self.node_daemon(node) for node in self.layout.nodes),
        ]
        report = {}
        for daemon in daemons:
            pid = daemon.pid()
            report[daemon.name] = f"up (pid {pid})" if pid else "down"
        if self.controller.pid() is not None:
            report["nodes"] = self.command("sinfo", "-h", "-N", "-o", "%N=%T").replace("\n", " ").strip()
        return report

    def is_up(self) -> bool:
        """True when all daemons run."""
        report = self.status()
        return all(state.startswith("up") for name, state in report.items() if name != "nodes")

    def wait_for_nodes(self, seconds: float = 120.0) -> None:
        """Wait until every node can take jobs."""

        def ready() -> bool:
            done = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T")
            states = dict(line.split() for line in done.stdout.splitlines())
            return all(
                states.get(node, "down") in ("idle", "mixed", "allocated", "completing") for node in self.layout.nodes
            )

        wait_until(ready, seconds, f"nodes of the test cluster (slurmctld says: {self.controller.last_words()})")

    # -- the controller --------------------------------------------------------------------------------

    @property
    def controller(self) -> Daemon:
        return Daemon("slurmctld", self.layout.pid_file("slurmctld"), self.layout.log("slurmctld"))

    def start_controller(self) -> None:
        """Start slurmctld with the state it left, and wait until it answers."""
        self.controller.start(
            [*self.way_in, "slurmctld", "-D", "-f", str(self.layout.slurm_conf)], _root_environment(self.environment)
        )
        wait_until(
            lambda: self.run("scontrol", "ping").returncode == 0,
            60,
            f"slurmctld ({self.controller.last_words()})",
        )

    def stop_controller(self) -> None:
        """End slurmctld cleanly; jobs go on."""
        self.controller.stop()

    def pause_controller(self) -> None:
        """SIGSTOP: connections are accepted by the kernel, and nobody answers."""
        if not self.controller.send(signal.SIGSTOP):
            raise RuntimeError("slurmctld is not running, so it cannot be paused")

    def resume_controller(self) -> None:
        """SIGCONT after `pause_controller`."""
        self.controller.send(signal.SIGCONT)

    def set_min_job_age(self, seconds: int = configuration.MIN_JOB_AGE) -> None:
        """Change for how long the controller remembers ended jobs, without a restart; or back to the default."""
        self._write_files(seconds)
        self.command("scontrol", "reconfigure")

    # -- the nodes -------------------------------------------------------------------------------------

    def node_daemon(self, node: str) -> Daemon:
        name = f"slurmd-{node}"
        return Daemon(name, self.layout.pid_file(name), self.layout.log(name))

    def start_node(self, node: str) -> None:
        self.node_daemon(node).start(
            [*self.way_in, "slurmd", "-D", "-N", node, "-f", str(self.layout.slurm_conf)],
            _root_environment(self.environment),
        )

    def kill_node(self, node: str) -> None:
        """What a power cut does: slurmd and every process of its jobs die at once, and the controller is told
        at once what it would find out after SlurmdTimeout."""
        self.node_daemon(node).kill()
        self._end_job_processes(node)
        self.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power cut")

    def restore_node(self, node: str) -> None:
        """Start a killed node again, and wait until it can take jobs."""
        self.start_node(node)
        self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.wait_for_nodes()

    # -- questions and orders --------------------------------------------------------------------------

    def run(self, *argv: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a Slurm command as root."""
        return subprocess.run(
            [*self.way_in, *argv],
            env=_root_environment(self.environment),
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def command(self, *argv: str, timeout: float = 60.0) -> str:
        """Run a Slurm command as root; its standard output. Raises RuntimeError when it fails."""
        done = self.run(*argv, timeout=timeout)
        if done.returncode != 0:
            raise RuntimeError(f"`{' '.join(argv)}` failed: {done.stderr.strip()}")
        return done.stdout

    def run_as(
        self, user: str, argv: Sequence[str], *, stdin: str = "", timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as an ordinary user of the cluster."""
        return users.run_as(user, argv, environment=self.environment, stdin=stdin, timeout=timeout)

    def rpc_counts(self) -> dict[str, int]:
        """How many messages of each type slurmctld has handled since `reset_rpc_counts` (`sdiag`)."""
        section = self.command("sdiag").split("Remote Procedure Call statistics by message type", 1)[1]
        section = section.split("Remote Procedure Call statistics by user", 1)[0]
        found = re.findall(r"^\s*(\S+)\s*\(\s*\d+\)\s*count:(\d+)", section, flags=re.MULTILINE)
        return {name: int(count) for name, count in found}

    def reset_rpc_counts(self) -> None:
        self.command("sdiag", "--reset")

    def drain(self, seconds: float = 60.0) -> None:
        """Cancel all jobs and wait until none is left in any state that holds resources."""
        listing = self.command("squeue", "-h", "-o", "%A").split()
        if listing:
            self.run("scancel", "-Q", *sorted(set(listing)))
        wait_until(lambda: not self.command("squeue", "-h").strip(), seconds, "end of all jobs")

    # -- what a profile adds ---------------------------------------------------------------------------

    def services(self) -> list[Daemon]:
        """Daemons that stand between munged and the controller; none in the default profile."""
        return []

    def _start_services(self) -> None:
        """Start them, and wait until the controller can be started."""

    # -- inside ----------------------------------------------------------------------------------------

    def _munged(self) -> Daemon:
        return Daemon("munged", self.layout.pid_file("munged"), self.layout.log("munged"))

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self.layout.run.mkdir(parents=True, exist_ok=True)
        with (self.layout.run / "lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _write_files(self, min_job_age: int) -> None:
        run = self.layout.run
        for name in ("etc", "state", "log", "pid", "munge", "spool"):
            (run / name).mkdir(parents=True, exist_ok=True)
            (run / name).chmod(0o755)
        (run / "state").chmod(0o700)
        self.layout.job_root.mkdir(exist_ok=True)
        self.layout.job_root.chmod(0o1777)
        for node in self.layout.nodes:
            (run / "spool" / node).mkdir(exist_ok=True)
        key = run / "munge" / "key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(128))
        _write(self.layout.slurm_conf, configuration.slurm_conf(self.layout, min_job_age, self.profile))
        _write(run / "etc" / "gres.conf", configuration.gres_conf(self.layout))
        _write(
            run / "etc" / "cgroup.conf",
            configuration.cgroup_conf(self.profile.constrains_memory and _memory_controller()),
        )
        for device in map(Path, configuration.GPU_DEVICES):
            if not device.exists():
                os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
                device.chmod(0o666)

    def _end_job_processes(self, node: str) -> None:
        """SIGKILL everything that slurmd of `node` started for jobs of this cluster."""
        marks = (f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.layout.slurm_conf}".encode())
        victims = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                environment = (entry / "environ").read_bytes().split(b"\0")
                if all(mark in environment for mark in marks):
                    victims.add(int(entry.name))
        # slurmstepd must go first: it would report the end of its children as the job's own.
        keepers = {keeper for keeper in map(_slurmstepd_of, victims) if keeper}
        for pid in (*keepers, *victims):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: all(started_at(pid) is None for pid in victims), 60, f"end of jobs on {node}")


def _memory_controller() -> bool:
    """True when cgroup v1's memory controller is mounted and can be written."""
    return os.access(MEMORY_CONTROLLER / "cgroup.procs", os.W_OK)


def _slurmstepd_of(pid: int) -> int | None:
    """The slurmstepd that is the parent of a job's process, if it is."""
    with contextlib.suppress(OSError, ValueError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        parent = int(stat[stat.rindex(")") + 2 :].split()[1])
        if Path(f"/proc/{parent}/comm").read_text().strip() == "slurmstepd":
            return parent
    return None


def _root_environment(extra: dict[str, str]) -> dict[str, str]:
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        **extra,
    }


def _write(path: Path, text: str) -> None:
    """Replace a file's content in one step, and only when it differs."""
    if path.exists() and path.read_text() == text:
        return
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.chmod(0o644)
    draft.replace(path)


def slurm_commands_present() -> bool:
    return shutil.which("slurmctld", path="/usr/sbin:/usr/bin") is not None
