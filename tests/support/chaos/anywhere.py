"""Faults of what every site has: masters, their database, connections to them, processes of jobs, disks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random

from tests.support.chaos.kinds import Kinds, NothingToHit, long
from tests.support.chaos.site import JobProcess, Site, filled, mount

ANYWHERE = Kinds()


# -- masters -----------------------------------------------------------------------------------------------


@ANYWHERE.kind("masters")
def leader_killed(site: Site, dice: Random) -> str:
    """SIGKILL to the master that leads; another one takes over, and it is started again."""
    leader = site.leader()
    leader.kill()
    seconds = dice.uniform(0.0, 4.0)
    try:
        site.hold(seconds)
    finally:
        site.start_again(leader)
    return f"{leader.folder.name}, {seconds:.1f} s"


@ANYWHERE.kind("masters")
def leader_frozen(site: Site, dice: Random) -> str:
    """SIGSTOP to the master that leads, SIGCONT after a while: it wakes up in the belief that it still leads."""
    leader = site.leader()
    with frozen(leader.pid):
        seconds = site.hold(long(dice))
    return f"{leader.folder.name}, {seconds:.1f} s"


@ANYWHERE.kind("masters")
def all_masters_killed(site: Site, dice: Random) -> str:
    """SIGKILL to every master at once; they are started again."""
    for master in site.masters:
        master.kill()
    seconds = dice.uniform(0.0, 4.0)
    try:
        site.hold(seconds)
    finally:
        for master in site.masters:
            site.start_again(master)
    return f"{seconds:.1f} s"


@ANYWHERE.kind("masters")
def master_stopped(site: Site, dice: Random) -> str:
    """SIGTERM to a master, as for an update; it is started again."""
    master = dice.choice(site.masters)
    try:
        master.stop()
        seconds = site.hold(dice.uniform(0.0, 3.0))
    finally:
        site.start_again(master)
    return f"{master.folder.name}, {seconds:.1f} s"


# -- the database ------------------------------------------------------------------------------------------


@ANYWHERE.kind("database")
def database_connection_killed(site: Site, dice: Random) -> str:
    """SIGKILL to a process of PostgreSQL that serves a master: the server ends all others and recovers."""
    query = "SELECT pid, usename FROM pg_stat_activity WHERE usename LIKE 'master%%' ORDER BY pid"
    rows = site.rows(query)
    if not rows:
        raise NothingToHit
    victim = dice.choice(rows)
    with suppress(ProcessLookupError):
        os.kill(victim["pid"], signal.SIGKILL)
    return f"of {victim['usename']}"


@ANYWHERE.kind("database")
def database_connections_ended(site: Site, dice: Random) -> str:
    """pg_terminate_backend for every connection of a master, the one with the lead too."""
    name = dice.choice(site.masters).folder.name
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %(name)s"
    return f"{len(site.rows(query, name=name))} of {name}"


@ANYWHERE.kind("database")
def database_stopped(site: Site, dice: Random) -> str:
    """PostgreSQL is stopped at once, as in a power cut, and started again."""
    try:
        site.postgres.stop()
        seconds = site.hold(dice.uniform(0.5, 5.0))
    finally:
        site.postgres.start()
    return f"{seconds:.1f} s"


@ANYWHERE.kind("database")
def database_frozen(site: Site, dice: Random) -> str:
    """SIGSTOP to every process of PostgreSQL, SIGCONT after a while."""
    with site.postgres.hanging():
        seconds = site.hold(long(dice))
    return f"{seconds:.1f} s"


# -- connections to masters --------------------------------------------------------------------------------


@ANYWHERE.kind("connections")
def connections_reset(site: Site, dice: Random) -> str:
    """All connections to the masters are cut, several times."""
    cut = 0
    for _ in range(dice.randint(1, 5)):
        cut += sum(proxy.reset() for proxy in site.proxies)
        site.hold(dice.uniform(0.1, 0.6))
    return f"{cut} connections"


@ANYWHERE.kind("connections")
def connections_refused(site: Site, dice: Random) -> str:
    """All connections to the masters are cut, and new ones refused for a while."""
    for proxy in site.proxies:
        proxy.refuse()
    try:
        seconds = site.hold(long(dice))
    finally:
        for proxy in site.proxies:
            proxy.resume()
    return f"{seconds:.1f} s"


@ANYWHERE.kind("connections")
def connections_hang(site: Site, dice: Random) -> str:
    """Connections to the masters pass nothing on for a while; what was sent arrives late, or is cut."""
    for proxy in site.proxies:
        proxy.hang()
    try:
        seconds = site.hold(long(dice))
        if lost := dice.random() < 0.5:
            for proxy in site.proxies:
                proxy.reset()
    finally:
        for proxy in site.proxies:
            proxy.resume()
    return f"{seconds:.1f} s, then {'cut' if lost else 'passed on'}"


# -- processes of jobs -------------------------------------------------------------------------------------


@ANYWHERE.kind("processes")
def rank_killed(site: Site, dice: Random) -> str:
    """SIGKILL to a training, as the out-of-memory killer or its user sends it: that is the user's failure."""
    victim = _one(site, dice, lambda process: process.is_rank and bool(process.allocation))
    site.killed_ranks[victim.allocation] = time.time()
    _kill(victim)
    return victim.allocation


@ANYWHERE.kind("processes")
def runtime_killed(site: Site, dice: Random) -> str:
    """SIGKILL to the runtime of a job, before or during its training."""
    victim = _one(site, dice, lambda process: process.is_runtime)
    _kill(victim)
    return f"pid {victim.pid}"


@ANYWHERE.kind("processes")
def rank_frozen(site: Site, dice: Random) -> str:
    """SIGSTOP to a training, SIGCONT after a while."""
    victim = _one(site, dice, lambda process: process.is_rank)
    with frozen(victim.pid):
        seconds = site.hold(dice.uniform(0.5, 4.0))
    return f"{victim.allocation}, {seconds:.1f} s"


@ANYWHERE.kind("processes")
def runtime_frozen(site: Site, dice: Random) -> str:
    """SIGSTOP to the runtime of a job, SIGCONT after a while."""
    victim = _one(site, dice, lambda process: process.is_runtime)
    with frozen(victim.pid):
        seconds = site.hold(long(dice))
    return f"pid {victim.pid}, {seconds:.1f} s"


@ANYWHERE.kind("clock")
def clock_stepped(site: Site, dice: Random) -> str:
    """The clock of all trainings steps by up to an hour, forth or back, and back again after a while."""
    step = dice.choice([-3600, -60, -2, 2, 60, 3600])
    site.set_clock(step)
    try:
        seconds = site.hold(dice.uniform(0.5, 6.0))
    finally:
        site.set_clock(0)
    return f"{step:+d} s, {seconds:.1f} s"


# -- disks -------------------------------------------------------------------------------------------------


@ANYWHERE.kind("checkpoints")
def checkpoints_read_only(site: Site, dice: Random) -> str:
    """The storage of checkpoints is read-only for a while."""
    mount("-o", "remount,ro", str(site.checkpoints))
    try:
        seconds = site.hold(dice.uniform(0.5, 6.0))
    finally:
        mount("-o", "remount,rw", str(site.checkpoints))
    return f"{seconds:.1f} s"


@ANYWHERE.kind("checkpoints")
def checkpoints_full(site: Site, dice: Random) -> str:
    """The storage of checkpoints is full for a while."""
    with filled(site.checkpoints):
        seconds = site.hold(dice.uniform(0.5, 6.0))
    return f"{seconds:.1f} s"


# -- what they have in common ------------------------------------------------------------------------------


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process that does not run inside the block."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _one(site: Site, dice: Random, wanted: object) -> JobProcess:
    found = [process for process in site.processes() if wanted(process)]  # type: ignore[operator]
    if not found:
        raise NothingToHit
    return dice.choice(found)


def _kill(victim: JobProcess) -> None:
    try:
        os.kill(victim.pid, signal.SIGKILL)
    except ProcessLookupError:
        raise NothingToHit from None
