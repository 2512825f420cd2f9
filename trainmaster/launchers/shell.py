"""`python3 -m trainmaster.launchers.shell`: an SSH server of the job's user, for that user alone.

It takes one key, the shell's own, and shows a host key that the master knows. A login shell starts in the job's
working folder with the job's environment.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from pathlib import Path
from typing import List, Mapping, Optional

from trainmaster.launchers import terminals
from trainmaster.launchers.service import Service

_SBIN = ("/usr/sbin", "/usr/local/sbin", "/sbin", "/opt/ssh/sbin")
_SFTP = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")
# What a login has of its own.
_OWN = frozenset(
    ("TERM", "SHLVL", "_", "PWD", "OLDPWD", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_ORIGINAL_COMMAND")
)


def main() -> int:
    """Run the SSH server; returns the status to leave with."""
    sshd = find_sshd(os.environ.get("PATH", ""))
    if sshd is None:
        print("there is no sshd in this image (or on this node): install openssh-server", file=sys.stderr, flush=True)
        return 127
    service = Service()
    folder = service.run_dir / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host_key", "authorized_keys"):
        private = folder / name
        private.write_bytes((service.job_folder / "secrets" / name).read_bytes())
        private.chmod(0o600)
    enter = folder / "enter.sh"
    enter.write_text(entrance(os.environ, os.getcwd()), encoding="utf-8", errors="surrogateescape")
    enter.chmod(0o700)
    config = folder / "sshd_config"
    if os.geteuid() == 0:
        prepare_for_root()

    def command() -> List[str]:
        config.write_text("\n".join(configuration(folder, service.address, service.port)) + "\n", encoding="utf-8")
        return [str(sshd), "-D", "-e", "-f", str(config)]

    search = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    return service.run(command, environment=search, prepare=terminals.preparation(folder))


def find_sshd(path: str) -> Optional[str]:
    """Find the full path of sshd, which sshd must be started by."""
    return shutil.which("sshd", path=os.pathsep.join([path, *_SBIN]))


def configuration(folder: Path, address: str, port: int) -> List[str]:
    """Build sshd_config(5): public keys only, one file of them, no other user, no PAM. StrictModes is off: the
    folder is private, and the folders above it are up to the scheduler."""
    lines = [
        "Port %d" % port,
        "ListenAddress %s" % address,
        'HostKey "%s"' % (folder / "host_key"),
        'AuthorizedKeysFile "%s"' % (folder / "authorized_keys"),
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PubkeyAuthentication yes",
        "PermitRootLogin prohibit-password",
        "X11Forwarding no",
        "PrintMotd no",
        "PrintLastLog no",
        "ClientAliveInterval 60",
        'ForceCommand "%s"' % (folder / "enter.sh"),
    ]
    sftp = next((path for path in _SFTP if os.access(path, os.X_OK)), None)
    return [*lines, "Subsystem sftp %s" % sftp] if sftp else lines


def entrance(environment: Mapping[str, str], folder: str) -> str:
    """Build a script that gives a login the job's environment and folder, then runs a shell or the command of the
    login."""
    exports = [
        "export %s=%s" % (name, shlex.quote(value))
        for name, value in sorted(environment.items())
        if name not in _OWN and name.isidentifier()
    ]
    return "\n".join(
        [
            "#!/bin/sh",
            *exports,
            "cd %s" % shlex.quote(folder),
            'shell="${SHELL:-/bin/sh}"',
            '[ -x "$shell" ] || shell=/bin/sh',
            'if [ -n "$SSH_ORIGINAL_COMMAND" ]; then exec "$shell" -c "$SSH_ORIGINAL_COMMAND"; fi',
            'exec "$shell"',
            "",
        ]
    )


def prepare_for_root() -> None:
    """Create the folder that sshd needs for its unprivileged half where a container's user is root."""
    separated = Path("/run/sshd")
    if not separated.exists():
        separated.mkdir(mode=0o755, parents=True)
    if not stat.S_ISDIR(separated.stat().st_mode):
        raise SystemExit("%s is no folder: sshd cannot start" % separated)


if __name__ == "__main__":
    sys.exit(main())
