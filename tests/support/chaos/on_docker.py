"""Faults of Docker hosts: their agents, their daemon, their containers, their network."""

from __future__ import annotations

import signal
from contextlib import suppress
from random import Random

import docker

from tests.support.chaos.docker_site import DockerSite
from tests.support.chaos.kinds import Kinds, NothingToHit, long

ON_DOCKER = Kinds()


@ON_DOCKER.kind("agents")
def agent_killed(site: DockerSite, dice: Random) -> str:
    """SIGKILL to an agent, whose containers run on; it is started again."""
    return _killed(site, dice, shortest=0.0, longest=3.0)


@ON_DOCKER.kind("agents")
def agent_away(site: DockerSite, dice: Random) -> str:
    """An agent is killed and stays away for longer than its host is waited for: its trials go on elsewhere."""
    return _killed(site, dice, shortest=12.0, longest=22.0)


def _killed(site: DockerSite, dice: Random, *, shortest: float, longest: float) -> str:
    agent = site.agents[dice.choice(list(site.agents))]
    agent.kill()
    seconds = dice.uniform(shortest, longest)
    try:
        site.hold(seconds)
    finally:
        site.start_agent(agent)
    return f"{agent.name}, {seconds:.1f} s"


@ON_DOCKER.kind("agents")
def agent_stopped(site: DockerSite, dice: Random) -> str:
    """SIGTERM to an agent, as for an update; it is started again."""
    agent = site.agents[dice.choice(list(site.agents))]
    agent.stop()
    site.start_agent(agent)
    return agent.name


@ON_DOCKER.kind("agents")
def agent_frozen(site: DockerSite, dice: Random) -> str:
    """SIGSTOP to an agent, SIGCONT after a while."""
    agent = site.agents[dice.choice(list(site.agents))]
    agent.send(signal.SIGSTOP)
    try:
        seconds = site.hold(long(dice))
    finally:
        agent.send(signal.SIGCONT)
    return f"{agent.name}, {seconds:.1f} s"


@ON_DOCKER.kind("agents", "connections")
def host_cut_off(site: DockerSite, dice: Random) -> str:
    """An agent and its containers do not reach the master for a while: refused, or without an answer."""
    name = dice.choice(list(site.ways))
    way, how = site.ways[name], dice.choice(["refused", "hangs"])
    way.refuse() if how == "refused" else way.hang()
    try:
        seconds = site.hold(long(dice))
    finally:
        way.resume()
    return f"{name}, {how}, {seconds:.1f} s"


@ON_DOCKER.kind("containers")
def container_removed(site: DockerSite, dice: Random) -> str:
    """Somebody removes a container by force."""
    name = _one(site, dice)
    with suppress(docker.errors.APIError):
        site.engine.remove(name)
    return name


@ON_DOCKER.kind("containers")
def container_paused(site: DockerSite, dice: Random) -> str:
    """Somebody pauses a container, and lets it go on."""
    name = _one(site, dice)
    try:
        site.engine.pause(name)
    except docker.errors.APIError:
        raise NothingToHit from None
    try:
        seconds = site.hold(dice.uniform(0.5, 4.0))
    finally:
        with suppress(docker.errors.APIError):
            site.engine.unpause(name)
    return f"{name}, {seconds:.1f} s"


@ON_DOCKER.kind("containers", "agents")
def docker_restarted(site: DockerSite, dice: Random) -> str:
    """The Docker daemon is stopped, which ends its containers, and started again."""
    with suppress(docker.errors.DockerException):
        site.engine.stop()
    seconds = site.hold(dice.uniform(0.0, 2.0))
    site.engine.start()
    return f"{seconds:.1f} s"


def _one(site: DockerSite, dice: Random) -> str:
    names = site.running()
    if not names:
        raise NothingToHit
    return dice.choice(names)
