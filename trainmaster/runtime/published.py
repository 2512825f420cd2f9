"""Tells the published `determined` package where in this job the things are that it looks for in fixed places.

Its own containers have /run/determined, /determined_shared_fs and a /tmp that nobody else uses. A job without a
container has none of these, and shares /tmp with everybody on its node. The package is changed in memory only, by the
alias package that loads it; what a release other than 0.38.1 does not have is left alone.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any, Callable, Mapping

_RUN_DIR = "/run/determined"
_INFO = ("RendezvousInfo", "TrialInfo", "ResourcesInfo", "ClusterInfo")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def settle(environ: Mapping[str, str], alias: str) -> None:
    """Show the package this job's folders. It must have been imported; outside of a job this does nothing. `alias`: the
    folder of our alias package, with the launchers that take the place of its own."""
    run_dir = environ.get("TRAINMASTER_RUN_DIR")
    if not run_dir:
        return
    _info_files(run_dir)
    constants = _module("determined.constants")
    if constants is not None:
        constants.MANAGED_TRAINING_MODEL_COPY = _copy_of_files(run_dir)
    launch = _module("determined.launch")
    if launch is not None:
        # Its own for Horovod and DeepSpeed start workers through ssh servers, whose keys a job does not have.
        launch.__path__.insert(0, os.path.join(alias, "without_ssh"))
    _shared_storage(Path(run_dir))
    _temporary_files(run_dir)


def _copy_of_files(run_dir: str) -> str:
    """The user's files, which the package saves with each checkpoint: as they came, not with what the training puts
    beside them. Made by the first process that loads the package; most jobs never do."""
    copy = os.path.join(run_dir, "train", "model")
    if not os.path.isdir(copy):
        fresh = "%s.%d" % (copy, os.getpid())
        try:
            shutil.copytree(os.path.join(run_dir, "workdir"), fresh, symlinks=True)
            os.rename(fresh, copy)
        except OSError:  # another process was first, or the disk is full, which saving will tell
            shutil.rmtree(fresh, ignore_errors=True)
    return copy


def _info_files(run_dir: str) -> None:
    """Where `get_cluster_info()` reads: the paths are the default arguments of what does it."""
    module = _module("determined._info")
    for name in _INFO:
        methods = vars(getattr(module, name, object))
        for method in map(_function, methods.values()):
            if method is not None and method.__defaults__:
                method.__defaults__ = tuple(
                    run_dir + value[len(_RUN_DIR) :] if isinstance(value, str) and value.startswith(_RUN_DIR) else value
                    for value in method.__defaults__
                )


def _function(member: object) -> Any:
    member = getattr(member, "__func__", member)
    return member if isinstance(member, FunctionType) else None


def _shared_storage(run_dir: Path) -> None:
    """A shared_fs storage has its own path here, with a container and without one."""
    try:
        storage = json.loads((run_dir / "info" / "runtime.json").read_text(encoding="utf-8"))["checkpoint_storage"]
    except (OSError, ValueError, KeyError):
        return
    if storage.get("type") != "shared_fs":
        return
    constants = _module("determined.common.constants")
    if constants is not None:
        constants.SHARED_FS_CONTAINER_PATH = storage["host_path"]
    disk = getattr(_module("determined.core._profiler"), "_Disk", None)
    if disk is not None:
        disk._disk_paths = ["/", storage["host_path"]]


def _temporary_files(run_dir: str) -> None:
    """What it keeps in /tmp under names that others could take, or that nobody would remove."""
    ipc = _module("determined.ipc")
    read_address = getattr(ipc, "read_pid_server_addr", None)
    if read_address is not None:
        ipc.read_pid_server_addr = _elsewhere(read_address, run_dir)
    build = _module("determined.tensorboard.build")
    base_path = getattr(build, "get_base_path", None)
    if base_path is not None:
        moved = _below(base_path, run_dir)
        build.get_base_path = moved
        tensorboard = _module("determined.tensorboard")
        if getattr(tensorboard, "get_base_path", None) is base_path:
            tensorboard.get_base_path = moved


def _elsewhere(read_address: Callable[[str], Any], run_dir: str) -> Callable[[str], Any]:
    def read_pid_server_addr(addr: str) -> Any:
        found = read_address(addr)
        if isinstance(found, str) and os.path.dirname(found) == "/tmp":  # noqa: S108 - is what is moved away
            # One server a node and attempt; the attempt's id could make the path too long for a socket.
            return os.path.join(run_dir, "pid.sock")
        return found

    return read_pid_server_addr


def _below(base_path: Callable[[Mapping[str, Any]], Path], run_dir: str) -> Callable[[Mapping[str, Any]], Path]:
    def get_base_path(checkpoint_config: Mapping[str, Any] = _NOTHING) -> Path:
        return base_path({"base_path": run_dir, **checkpoint_config})

    return get_base_path


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
