"""`det shell`: starts shells on the cluster and connects OpenSSH to them through the master, with host keys checked."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trainmaster.cli.launching import add_common_verbs, add_launch_options, launch
from trainmaster.cli.session import connect, say
from trainmaster.cli.verbs import Verbs
from trainmaster.client.errors import ClientError
from trainmaster.client.master import Master
from trainmaster.client.untrusted import checked_account, checked_id


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("start", _start, "start a shell and enter it", "det shell start --config resources.slots=1")
    add_launch_options(p)
    p.add_argument("--show-ssh-command", action="store_true", help="print the command and leave the keys for it")
    p.add_argument("ssh_opts", nargs="*", metavar="SSH_OPTION", help="for ssh, after --")
    p = verbs.add("open", _open, "enter a shell, or run something in it", "det shell open 0d9b31f2 -- nvidia-smi")
    p.add_argument("task_id", help="its id, or the beginning of it")
    p.add_argument("--show-ssh-command", action="store_true", help="print the command and leave the keys for it")
    p.add_argument("ssh_opts", nargs="*", metavar="SSH_OPTION", help="for ssh, after --")
    p = verbs.add(
        "show-ssh-command", _show, "print the ssh command, for editors", "det shell show-ssh-command 0d9b31f2",
        ["show_ssh_command"],
    )  # fmt: skip
    p.add_argument("task_id", help="its id, or the beginning of it")
    p.add_argument("ssh_opts", nargs="*", metavar="SSH_OPTION", help="for ssh, after --")
    add_common_verbs(verbs, "shell", "shell")


def _start(args: argparse.Namespace) -> int:
    master = connect(args)
    made = launch(master, "shell", args)
    if args.detach:
        print(made["id"])
        return 0
    print(f"Shell {made['id']} ({made['description']})", file=sys.stderr, flush=True)
    return _enter(master, args, made["id"])


def _open(args: argparse.Namespace) -> int:
    master = connect(args)
    return _enter(master, args, master.tasks.find("shell", args.task_id))


def _show(args: argparse.Namespace) -> None:
    master = connect(args)
    shell = _ready(master, master.tasks.find("shell", args.task_id))
    print(shlex.join(_command(master, args, shell, _kept(shell["id"]))))


def _enter(master: Master, args: argparse.Namespace, task_id: str) -> int:
    shell = _ready(master, task_id)
    if args.show_ssh_command:
        command = _command(master, args, shell, _kept(task_id))
        print(shlex.join(command), file=sys.stderr, flush=True)
        return _ssh(command)
    with tempfile.TemporaryDirectory(prefix="det-shell-") as folder:
        return _ssh(_command(master, args, shell, Path(folder)))


def _ready(master: Master, task_id: str) -> dict[str, Any]:
    """Wait for the shell, until it accepts connections. Raises ClientError."""
    checked_id(task_id, "shell")
    master.tasks.wait_ready(task_id, notice=say)
    shell = master.tasks.get("shell", task_id)
    if not shell["privateKey"]:
        raise ClientError(f"The shell {task_id} belongs to another user.")
    checked_id(shell["id"], "shell")
    return shell


def _kept(task_id: str) -> Path:
    """Make a private folder for keys that are needed later."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "trainmaster" / "shell" / task_id
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _command(master: Master, args: argparse.Namespace, shell: dict[str, Any], folder: Path) -> list[str]:
    """Return the ssh command; write the files that it needs to `folder`."""
    key, known = folder / "key", folder / "known_hosts"
    for path, content in ((key, shell["privateKey"]), (known, f"{shell['id']} {shell['hostPublicKey']}\n")):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content)
    tunnel = [sys.executable, "-m", "trainmaster.cli.det", "-m", master.url, "tunnel", shell["id"]]
    options = {
        "ProxyCommand": shlex.join(tunnel).replace("%", "%%"),
        "UserKnownHostsFile": str(known),
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "IdentityFile": str(key),
        # An option's value: as a part of `user@host` the name of an account could begin a word, and so be an option.
        "User": _quoted(checked_account(shell["agentUserGroup"]["user"])),
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    terminal = ["-tt"] if sys.stdin.isatty() else []
    # No `--` before the host: ssh would take what follows it for a command, and SSH_OPTION may be `-L ...`.
    return ["ssh", *words, *terminal, shell["id"], *args.ssh_opts]


def _quoted(value: str) -> str:
    """Quote a value as ssh_config(5) reads it, where an account's name has blanks or backslashes."""
    if not any(character in value for character in " \\\"'#"):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _ssh(command: list[str]) -> int:
    try:
        return subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        raise ClientError("There is no `ssh` on this machine; install OpenSSH's client.") from None
