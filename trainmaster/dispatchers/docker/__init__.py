"""Dispatcher for plain Docker hosts: runs jobs through our agents, with our own gang scheduler."""

from trainmaster.dispatchers.docker.dispatcher import DockerDispatcher

__all__ = ["DockerDispatcher"]
