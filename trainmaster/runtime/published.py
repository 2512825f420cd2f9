"""Redirects the published `determined` package from its fixed paths to this job's folders.

Its own containers have /run/determined, /determined_shared_fs and a /tmp of their own. A job without a
container has none of these, and shares /tmp with everybody on its node. The package is changed in memory only, by the
alias package that loads it; what a release other than 0.38.1 does not have is left alone.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any, Callable, Mapping

_RUN_DIR = "/run/determined"
_INFO = ("RendezvousInfo", "TrialInfo", "ResourcesInfo", "ClusterInfo")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def settle(environ: Mapping[str, str], alias: str) -> None:
    """Redirect the package, which must have been imported. Does nothing outside of a job. `alias`: the folder of
    our alias package, with the launchers that replace the package's own."""
    run_dir = environ.get("TRAINMASTER_RUN_DIR")
    if not run_dir:
        return
    _say_so(run_dir)
    _info_files(run_dir)
    constants = _module("determined.constants")
    if constants is not None:
        constants.MANAGED_TRAINING_MODEL_COPY = copy_of_files(run_dir)
    launch = _module("determined.launch")
    if launch is not None:
        # Its own for Horovod and DeepSpeed start workers through ssh servers, whose keys a job does not have.
        launch.__path__.insert(0, os.path.join(alias, "without_ssh"))
    _shared_storage(Path(run_dir))
    _temporary_files(run_dir)


def _say_so(run_dir: str) -> None:
    """Say once in a job which of the two packages trains."""
    try:
        os.close(os.open(os.path.join(run_dir, "published"), os.O_CREAT | os.O_EXCL))
    except OSError:
        return  # another process was first
    version = getattr(_module("determined"), "__version__", "?")
    print(
        "`import determined` is this image's own package, release %s; TRAINMASTER_DETERMINED=ours takes trainmaster's"
        % version,
        file=sys.stderr,
        flush=True,
    )


def copy_of_files(run_dir: str) -> str:
    """Copy the user's files, which the package saves with each checkpoint, before the training changes them. The
    first process that loads the package makes the copy; most jobs need none."""
    copy = os.path.join(run_dir, "train", "model")
    if not os.path.isdir(copy):
        fresh = "%s.%d" % (copy, os.getpid())
        try:
            shutil.copytree(os.path.join(run_dir, "workdir"), fresh, symlinks=True)
            os.rename(fresh, copy)
        except OSError:  # another process was first, or the disk is full, on which saving will fail
            shutil.rmtree(fresh, ignore_errors=True)
    return copy


def _info_files(run_dir: str) -> None:
    """Redirect `get_cluster_info()`, whose methods have the paths as default arguments."""
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
    """Set the path of a shared_fs storage, which is the host's own here, with a container and without one."""
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
    """Move files out of /tmp, where their names could be taken by others and nothing would remove them."""
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
        address = read_address(addr)
        if isinstance(address, str) and os.path.dirname(address) == "/tmp":  # noqa: S108 - is what is moved away
            # One server a node and attempt; the attempt's id could make the path too long for a socket.
            return os.path.join(run_dir, "pid.sock")
        return address

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
