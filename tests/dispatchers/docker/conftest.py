"""A hub, an agent on a real Docker daemon, and a dispatcher between them."""

from tests.docker.engine import docker_engine

__all__ = ["docker_engine"]
