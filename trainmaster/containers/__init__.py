"""Container runtimes: wrap the process of one node in a container, or run it directly.

A container runtime writes `start.sh`, the script that starts `python3 -S <job folder>/runtime.zip <job folder>` on one
node. It is plain shell; there is no binding to a container tool.
"""

from trainmaster.containers.apptainer import resolve_image
from trainmaster.containers.base import (
    SHARED_FILES,
    Bind,
    CannotStart,
    Cause,
    ContainerRuntime,
    ContainerStart,
    Device,
    UnknownRuntime,
    container_runtime,
)

__all__ = [
    "SHARED_FILES",
    "Bind",
    "CannotStart",
    "Cause",
    "ContainerRuntime",
    "ContainerStart",
    "Device",
    "UnknownRuntime",
    "container_runtime",
    "resolve_image",
]
