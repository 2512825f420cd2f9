"""The docker dispatcher: our agents on plain Docker hosts, and our own gang scheduler."""

from trainmaster.dispatchers.docker.dispatcher import DockerDispatcher

__all__ = ["DockerDispatcher"]
