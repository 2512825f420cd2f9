"""Starts an OpenPBS that is installed but not configured: a server and two hosts on this machine, as root.

    python -m tests.support.pbs up|down

Everything of it is below RUN; only its hosts' names are added to /etc/hosts, with addresses of the loopback interface
that nobody else can reach, because PBS takes no host for one whose only address is 127.0.0.1.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.cluster.packages import Unavailable

RUN = Path("/var/lib/trainmaster-pbs")
CONF = RUN / "pbs.conf"
EXEC = Path(os.environ.get("PBS_EXEC", "/opt/pbs"))
SERVER = "tmpbs0"
HOSTS = {"tmpbs1": 15110, "tmpbs2": 15120}  # name: port of its MoM; the next one is its resource monitor's
ADDRESSES = {name: f"10.77.0.{number}" for number, name in enumerate([SERVER, *HOSTS], 1)}
MARK = "# trainmaster-pbs"
CPUS, GPUS = 4, 2
DAEMONS = {
    "pbs_comm": "server_priv/comm.lock",
    "pbs_sched": "sched_priv/sched.lock",
    "pbs_server": "server_priv/server.lock",
}
DEADLINE = 90.0  # seconds


def up() -> None:
    """Start what does not run. Raises Unavailable."""
    if os.geteuid() != 0:
        raise Unavailable("only root can bring up a PBS")
    if not (EXEC / "sbin/pbs_server").exists():
        raise Unavailable(f"there is no OpenPBS in {EXEC}")
    RUN.mkdir(mode=0o755, exist_ok=True)
    _name_hosts()
    for program in ("pbs_iff", "pbs_rcp"):
        (EXEC / "sbin" / program).chmod(0o4755)  # what pbs_postinstall of a package does
    fresh = not (RUN / "home/datastore").exists()
    CONF.write_text(_configuration("home", SERVER, server=True))
    if fresh:
        _run(CONF, str(EXEC / "libexec/pbs_habitat"))
        scheduler = RUN / "home/sched_priv/sched_config"
        scheduler.write_text(scheduler.read_text().replace('host, vnode, aoe, eoe"', 'host, vnode, ngpus"'))
    for program, lock in DAEMONS.items():
        if not _runs(RUN / "home" / lock):
            _run(CONF, str(EXEC / "sbin" / program))
    _wait(lambda: _qmgr("list server", check=False) == 0, "the server")
    if fresh:
        _qmgr("create resource ngpus type=long,flag=nh")
        for setting in ("job_history_enable=True", "scheduler_iteration=20", "flatuid=True"):
            _qmgr(f"set server {setting}")
    for name, port in HOSTS.items():
        _start_host(name, port)
    _wait(_hosts_are_free, "the hosts")


def down() -> None:
    """Stop everything and remove it."""
    homes = [RUN / name for name in (*HOSTS, "home")]
    locks = [lock for home in homes for lock in home.glob("*_priv/*.lock")]
    if CONF.exists() and _runs(RUN / "home/server_priv/server.lock"):
        subprocess.run([EXEC / "bin/qterm", "-t", "quick"], env=_environment(CONF), capture_output=True, check=False)
    for lock in locks:
        if _runs(lock):
            os.kill(int(lock.read_text()), signal.SIGTERM)
    _wait(lambda: not any(_runs(lock) for lock in locks), "the end of all daemons")
    shutil.rmtree(RUN, ignore_errors=True)
    hosts = Path("/etc/hosts")
    hosts.write_text("".join(line for line in hosts.read_text().splitlines(keepends=True) if MARK not in line))
    for address in ADDRESSES.values():
        subprocess.run(["ip", "address", "delete", f"{address}/32", "dev", "lo"], capture_output=True, check=False)


def _start_host(name: str, port: int) -> None:
    conf = RUN / f"{name}.conf"
    conf.write_text(_configuration(name, name, port=port))
    if not (RUN / name).exists():
        install = str(EXEC / "libexec/pbs_postinstall")
        _run(conf, install, "execution", _version(), str(EXEC), str(RUN / name), "", "sameconf")
        temporary = RUN / name / "tmp"
        temporary.mkdir()
        temporary.chmod(0o1777)
        with (RUN / name / "mom_priv/config").open("a") as file:
            # Not in /var/tmp: this server's first jobs have the numbers of an earlier one's, and where such a job's
            # folder is left, PBS takes it for an attack and holds the new job.
            file.write(f"$usecp *:/ /\n$tmpdir {temporary}\n")
    if not _runs(RUN / name / "mom_priv/mom.lock"):
        _run(conf, str(EXEC / "sbin/pbs_mom"))
    if _qmgr(f"list node {name}", check=False) != 0:
        _qmgr(f"create node {name} mom={name},port={port}")
        _qmgr(f"set node {name} resources_available.ncpus={CPUS}")
        _qmgr(f"set node {name} resources_available.ngpus={GPUS}")


def _hosts_are_free() -> bool:
    words = [EXEC / "bin/pbsnodes", "-a"]
    done = subprocess.run(words, env=_environment(CONF), capture_output=True, text=True, check=False)  # type: ignore[arg-type]
    return bool(done.stdout.count("state = free") >= len(HOSTS))


def _configuration(home: str, leaf: str, *, server: bool = False, port: int | None = None) -> str:
    own = int(server)
    lines = [
        f"PBS_EXEC={EXEC}", f"PBS_HOME={RUN / home}", f"PBS_SERVER={SERVER}", f"PBS_START_SERVER={own}",
        f"PBS_START_SCHED={own}", f"PBS_START_COMM={own}", f"PBS_START_MOM={1 - own}", f"PBS_LEAF_NAME={leaf}",
    ]  # fmt: skip
    if port is not None:
        lines += [f"PBS_MOM_NODE_NAME={leaf}", f"PBS_MOM_SERVICE_PORT={port}", f"PBS_MANAGER_SERVICE_PORT={port + 1}"]
    return "\n".join(lines) + "\n"


def _name_hosts() -> None:
    for address in ADDRESSES.values():
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], capture_output=True, check=False)
    hosts = Path("/etc/hosts")
    known = hosts.read_text()
    with hosts.open("a") as file:
        file.writelines(f"{address} {name} {MARK}\n" for name, address in ADDRESSES.items() if f" {name} " not in known)


def _version() -> str:
    said = subprocess.run([EXEC / "bin/qstat", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split("=")[-1].strip()


def _environment(conf: Path) -> Mapping[str, str]:
    return {
        "PATH": f"{EXEC}/bin:{EXEC}/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PBS_CONF_FILE": str(conf),
        "HOME": "/root",
    }


def _run(conf: Path, *words: str) -> None:
    done = subprocess.run(words, env=_environment(conf), capture_output=True, text=True, timeout=DEADLINE, check=False)
    if done.returncode != 0:
        raise Unavailable(
            f"{words[0]} ended with status {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}"
        )


def _qmgr(order: str, *, check: bool = True) -> int:
    words = [str(EXEC / "bin/qmgr"), "-c", order]
    done = subprocess.run(words, env=_environment(CONF), capture_output=True, text=True, timeout=DEADLINE, check=False)
    if check and done.returncode != 0:
        raise Unavailable(f"qmgr {order}: {done.stderr.strip()}")
    return done.returncode


def _runs(lock: Path) -> bool:
    try:
        os.kill(int(lock.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise Unavailable(f"{what} of PBS: not within {DEADLINE:.0f} s")
        time.sleep(0.2)


def main() -> None:
    """`up` or `down`."""
    try:
        {"up": up, "down": down}[sys.argv[1]]()
    except (KeyError, IndexError):
        sys.exit("usage: python -m tests.support.pbs up|down")
    except Unavailable as reason:
        sys.exit(str(reason))
