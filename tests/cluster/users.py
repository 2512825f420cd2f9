"""The two ordinary people of the test cluster, and running commands as one of them."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence

from tests.cluster.layout import USERS
from tests.cluster.packages import Unavailable


def ensure_users() -> None:
    """Create the users that are missing, with a home of mode 0700."""
    for name in USERS:
        try:
            pwd.getpwnam(name)
        except KeyError:
            if os.geteuid() != 0:
                raise Unavailable(f"not root, and the user {name} does not exist") from None
            subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True, capture_output=True)
        os.chmod(pwd.getpwnam(name).pw_dir, 0o700)


def run_as(
    user: str,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = 60.0,
    cwd: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command as `user` from their home with a small clean environment; never raises for its status."""
    account = pwd.getpwnam(user)
    clean = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": account.pw_dir,
        "USER": user,
        "LOGNAME": user,
        "LANG": "C.UTF-8",
    }
    return subprocess.run(
        list(argv),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd or account.pw_dir,
        env={**clean, **(environment or {})},
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=os.getgrouplist(user, account.pw_gid),
        check=False,
    )
