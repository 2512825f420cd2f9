"""Counts how often the kernel killed a process of our control group for lack of memory."""

from __future__ import annotations

import os
from typing import List, Optional


def oom_kills(root: str = "/") -> Optional[int]:
    """Read the counter of this process's memory control group; None when it cannot be read.

    cgroup v2: `oom_kill` in memory.events; v1: `oom_kill` in memory.oom_control (Linux 4.13 and newer). Inside a
    container the group's own path may not be visible: then the mount's root is our group. `root` is where the file
    system begins.
    """
    for path in _candidates(root):
        try:
            with open(path, encoding="ascii") as file:
                text = file.read()
        except (OSError, ValueError):
            continue
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.strip().isdigit():
                return int(value)
    return None


def _candidates(root: str) -> List[str]:
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError):
        return []
    mounts = os.path.join(root, "sys/fs/cgroup")
    paths: List[str] = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        inner = path.lstrip("/")
        if "memory" in controllers.split(","):
            paths += [
                os.path.join(mounts, "memory", inner, "memory.oom_control"),
                os.path.join(mounts, "memory", "memory.oom_control"),
            ]
        elif not controllers:
            for mount in (mounts, os.path.join(mounts, "unified")):
                paths += [os.path.join(mount, inner, "memory.events"), os.path.join(mount, "memory.events")]
    return paths
