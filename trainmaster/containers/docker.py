"""Builds the request body for the Docker container of one node of a job (Engine API, `POST /containers/create`).

The process runs as an ordinary account, has no capabilities and cannot gain any: those that a job asks for reach
root's processes only, where a host's administrator lets jobs run as root. It sees the image, its job folder under
the host's own path, an empty folder of the node's at `/run/determined`, a home, and the mounts that the job asks for.
/tmp is the image's own. PID 1 is Docker's init, so that a signal that comes before the process has a handler has
its usual effect: the kernel keeps such signals from a PID 1 (signal(7), pid_namespaces(7)).
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.containers.base import NODE_DIR, Bind, Device, runtime_arguments
from trainmaster.templates import ControlCharacter

LOG_FILES = {"max-size": "10m", "max-file": "2"}  # the runtime ships the training's output; this is the rest
RESERVED = ("/proc", "/sys", "/dev", NODE_DIR)
# Folders of the host that hold other processes, devices, sockets of services and other containers' files.
CLOSED = ("/proc", "/sys", "/dev", "/run", "/var/run", "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers")
OPEN = ("/dev/shm",)  # noqa: S108 - in a closed one
SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "crio.sock")
MAX_PIDS = 32768  # threads count: data loaders of a node with eight GPUs start thousands

_CAPABILITY = re.compile(r"(?:CAP_)?([A-Z][A-Z0-9_]*)", re.IGNORECASE)


@dataclass(frozen=True)
class ContainerUser:
    """The account that a process runs as on its host."""

    name: str
    uid: int
    gid: int
    groups: Sequence[int] = ()


@dataclass(frozen=True)
class DockerStart:
    """One container. `gpus` are device ids of NVIDIA's driver (UUIDs); sizes are bytes."""

    image: str
    job_folder: Path
    node_folder: Path  # of the host, empty
    home: Path  # of the host
    account: ContainerUser
    labels: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    shared: Sequence[Path] = ()  # folders of the host that links in the job folder lead to
    binds: Sequence[Bind] = ()
    gpus: Sequence[str] = ()
    rocm: bool = False
    network_mode: str = "host"
    shm_size: int | None = None
    devices: Sequence[Device] = ()
    add_capabilities: Sequence[str] = ()
    drop_capabilities: Sequence[str] = ()
    python: str = "python3"
    memory: int | None = None  # bytes at most
    pids: int = MAX_PIDS  # processes and threads at most


_ROCM = (Device("/dev/kfd", "/dev/kfd"), Device("/dev/dri", "/dev/dri"))


def container_body(start: DockerStart) -> dict[str, Any]:
    """Return the request body that creates the container. Raises ControlCharacter."""
    folder = str(start.job_folder)
    home = f"/home/{start.account.name}"
    mounts = [
        _mount(Bind(folder, folder)),
        *(_mount(Bind(str(each), str(each), read_only=True)) for each in start.shared),
        _mount(Bind(str(start.node_folder), NODE_DIR)),
        *([] if _is_taken(home, start.binds) else [_mount(Bind(str(start.home), home))]),
        *map(_mount, start.binds),
    ]
    variables = {
        "HOME": home,
        "USER": start.account.name,
        "LOGNAME": start.account.name,
        **start.variables,
        "TRAINMASTER_NODE_DIR": NODE_DIR,
    }
    dropped = _capabilities(start.drop_capabilities)
    # Docker takes ALL among those to add as all but the dropped ones; other names that stand in both lists it adds.
    added = [name for name in _capabilities(start.add_capabilities) if name not in dropped and "ALL" not in dropped]
    host: dict[str, Any] = {
        "Mounts": mounts,
        "NetworkMode": start.network_mode,
        "CapDrop": ["ALL", *dropped],
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": False,
        "Init": True,
        "GroupAdd": [str(group) for group in start.account.groups if group != start.account.gid],
        "LogConfig": {"Type": "json-file", "Config": dict(LOG_FILES)},
        "RestartPolicy": {"Name": "no"},
        "PidsLimit": start.pids,
    }
    if start.memory is not None:
        host["Memory"] = start.memory
    if start.shm_size is not None:
        host["ShmSize"] = start.shm_size
    if start.gpus:
        host["DeviceRequests"] = [{"Driver": "nvidia", "DeviceIDs": list(start.gpus), "Capabilities": [["gpu"]]}]
    if added:
        host["CapAdd"] = added
    devices = [*(_ROCM if start.rocm else ()), *start.devices]
    if devices:
        host["Devices"] = [
            {
                "PathOnHost": _plain(device.host_path),
                "PathInContainer": _plain(device.container_path),
                "CgroupPermissions": _plain(device.mode),
            }
            for device in devices
        ]
    return {
        "Image": _plain(start.image),
        "Entrypoint": [_plain(start.python)],
        "Cmd": list(runtime_arguments(start.job_folder)),
        "User": f"{start.account.uid}:{start.account.gid}",
        "Env": [f"{name}={value}" for name, value in sorted(variables.items())],
        "WorkingDir": folder,
        "Labels": dict(start.labels),
        "HostConfig": host,
    }


def check_binds(binds: Sequence[Bind]) -> list[str]:
    """Return sentences that say why a mount cannot be made; empty when all can."""
    complaints = []
    for bind in binds:
        for path in (bind.host_path, bind.container_path):
            if not path.startswith("/") or ".." in path.split("/"):
                complaints.append(f"bind_mounts: {path!r} must be an absolute path without '..'.")
        target = plain_path(bind.container_path)
        if target == "/" or any(target == place or target.startswith(f"{place}/") for place in RESERVED[:3]):
            complaints.append(f"bind_mounts: nothing can be mounted on {bind.container_path}.")
        elif target == NODE_DIR:
            complaints.append(f"bind_mounts: {NODE_DIR} is the trial's own; mount somewhere else.")
        if is_closed(bind.host_path):
            complaints.append(f"bind_mounts: {bind.host_path} of a host may not be mounted by a job.")
    return complaints


def parents_below_node(binds: Sequence[Bind]) -> list[str]:
    """Return the parent folders of mounts below the trial's own folder (`NODE_DIR`), relative to it."""
    targets = (plain_path(bind.container_path) for bind in binds)
    inside = (os.path.dirname(os.path.relpath(target, NODE_DIR)) for target in targets if _is_below_node(target))
    return [folder for folder in dict.fromkeys(inside) if folder]


def _is_below_node(target: str) -> bool:
    return target.startswith(f"{NODE_DIR}/")


def plain_path(path: str) -> str:
    """Normalize a path: no doubled slashes, no dots."""
    return "/" + os.path.normpath(path).lstrip("/")


def is_closed(path: str) -> bool:
    """Whether this path of the host is closed to all jobs, in whatever spelling."""
    plain = plain_path(path)
    if plain == "/" or os.path.basename(plain) in SOCKETS:
        return True
    closed, opened = (any(f"{plain}/".startswith(f"{top}/") for top in tops) for tops in (CLOSED, OPEN))
    return closed and not opened


def check_devices(devices: Sequence[Device]) -> list[str]:
    """Return sentences that say why a device cannot be given to a container; empty when all can."""
    complaints = []
    for device in devices:
        for path in (device.host_path, device.container_path):
            if not path.startswith("/") or ".." in path.split("/"):
                complaints.append(f"resources.devices: {path!r} must be an absolute path without '..'.")
        target = device.container_path.rstrip("/")
        if target in ("", "/dev", NODE_DIR) or any(f"{target}/".startswith(f"{place}/") for place in ("/proc", "/sys")):
            complaints.append(f"resources.devices: no device can be placed at {device.container_path}.")
        if not device.mode or not set(device.mode) <= set("rwm"):
            complaints.append(f"resources.devices: a mode is made of r, w and m, not {device.mode!r}.")
    return complaints


def check_capabilities(names: Sequence[str]) -> list[str]:
    """Return sentences about names that cannot be capabilities. Whether a capability exists is left to the kernel."""
    return [
        f"environment: {name!r} is not a capability; use a name from capabilities(7), such as SYS_PTRACE."
        for name in names
        if not _CAPABILITY.fullmatch(name)
    ]


def _capabilities(names: Sequence[str]) -> list[str]:
    """Return the names as Docker lists them: upper case, without CAP_, each once."""
    names_given = (match[1].upper() if (match := _CAPABILITY.fullmatch(name)) else _plain(name) for name in names)
    return list(dict.fromkeys(names_given))


def _mount(bind: Bind) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": _plain(bind.host_path),
        "Target": _plain(bind.container_path),
        "ReadOnly": bind.read_only,
    }


def _is_taken(path: str, binds: Sequence[Bind]) -> bool:
    return any(bind.container_path.rstrip("/") == path for bind in binds)


def _plain(text: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ControlCharacter(f"a value for a container may not hold control characters: {text!r}")
    return text
