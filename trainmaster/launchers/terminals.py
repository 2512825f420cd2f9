"""Opens terminals of an ordinary user's SSH server in containers whose terminals do not belong to the group `tty`.

sshd gives each terminal to that group, and ends the session when it may not (OpenSSH, sshpty.c, pty_setowner). It has
nothing to do where /dev/pts is mounted with the group's number, as hosts do. A container runtime without privileges
cannot name that number, and an ordinary user cannot give files away. Where there is no group `tty`, sshd takes the
user's own: so the server gets a list of groups without it, in a mount namespace of its own (user_namespaces(7)).
"""

from __future__ import annotations

import ctypes
import grp
import os
import sys
from pathlib import Path
from typing import Callable, Optional

GROUPS = "/etc/group"
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_BIND = 4096


def refused() -> bool:
    """Whether sshd would end a session of this user that asks for a terminal."""
    if os.geteuid() == 0:
        return False
    try:
        wanted = grp.getgrnam("tty").gr_gid
        ours, terminal = os.openpty()
    except (KeyError, OSError):
        return False
    try:
        return os.fstat(terminal).st_gid != wanted
    finally:
        os.close(ours)
        os.close(terminal)


def without_group(folder: Path) -> Callable[[], None]:
    """Build the function that a child calls before it becomes sshd. `folder` takes the list of groups, and must be
    private. The function raises OSError where the kernel or a site forbids such namespaces."""
    groups = folder / "group"
    lines = Path(GROUPS).read_text(encoding="utf-8", errors="surrogateescape").splitlines(True)
    kept = "".join(line for line in lines if not line.startswith("tty:"))
    groups.write_text(kept, encoding="utf-8", errors="surrogateescape")
    libc = ctypes.CDLL(None, use_errno=True)
    maps = [("setgroups", "deny")]
    maps += [
        ("uid_map", "%d %d 1" % (os.geteuid(), os.geteuid())),
        ("gid_map", "%d %d 1" % (os.getegid(), os.getegid())),
    ]

    def enter() -> None:
        _check(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
        for name, text in maps:
            with open("/proc/self/" + name, "w") as file:
                file.write(text)
        _check(libc.mount(os.fsencode(groups), os.fsencode(GROUPS), None, _MS_BIND, None))

    return enter


def possible(enter: Callable[[], None]) -> bool:
    """Whether `enter` works here, tried in a separate process."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            enter()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def preparation(folder: Path) -> Optional[Callable[[], None]]:
    """Return the function for sshd's child to call; None where none is needed or possible."""
    if not refused():
        return None
    try:
        enter = without_group(folder)
        if possible(enter):
            return enter
    except OSError:  # no list of groups to be read, no further process: the shell is worth having all the same
        pass
    print("sshd can open no terminals here: only commands work in this shell (ssh -T)", file=sys.stderr, flush=True)
    return None


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
