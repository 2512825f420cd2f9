#!/usr/bin/python3 -I
"""trainmaster-helper: carries out a training master's requests on a cluster, as the user whose job it is.

sudo starts it on this machine (`sudo -n -H -u USER /usr/local/libexec/trainmaster-helper`), or an SSH login as the user
does. It never has more rights than that user, so nothing here may be set-uid. It prints `trainmaster-helper VERSION
ready`, reads one request, a JSON object on one line of standard input, and prints one answer, a JSON object between two
copies of the request's `mark`, so that other output of a login does no harm. Verbs:

    stage    make the job folder ROOT/TOKEN and write its files,     collect  read what the job left there
    forget   remove the job folder                                   tail     read the end of the job's output
    run      run one of the scheduler's commands                     check    report account and paths
    announce write the master's address beside the job folders; only for the account that the master logs in as
    clear    remove files that match, in the folder of one of the user's checkpoints or of its event files

Installed, it obeys /etc/trainmaster/helper.json, which root must own: `job_roots` (the only
folders below which job folders may be), `storage_roots` (the same for checkpoints), `programs` (name: path),
`environment` (variables for them, with their values), `min_uid` (1000), `denied_users`, `denied_groups`. It trusts
neither its caller nor the job: no path is followed through a link below a job root, every file must be the user's own
and of bounded size, and no shell is involved.

Python 3.8 and its standard library only. Installed as one file: `helper_client.own_source` puts the other
modules of this folder in the place of their imports.
"""

from __future__ import annotations

import base64
import grp
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from trainmaster.dispatchers.cluster.jobfolder.job_files import (
    MAX_RECORD,
    POLICY,
    TAIL,
    NotShared,
    announce,
    collect,
    forget,
    stage,
    tail,
)
from trainmaster.dispatchers.cluster.jobfolder.own_files import RequestFailed, RequestRefused
from trainmaster.dispatchers.cluster.jobfolder.shared_files import SharedContent
from trainmaster.dispatchers.cluster.jobfolder.trees import Rules, Unfinished, Untouched, remove

VERSION = 4
SLURM = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol")
PROGRAMS = (*SLURM, "qsub", "qstat", "qselect", "qdel", "qsig", "pbsnodes")
# Whose members are as good as root: they may become it, own an engine's or a hypervisor's socket, or read and write
# disks, memory or passwords. No names that sites also use for people, such as staff.
DENIED_GROUPS = (
    *("root", "wheel", "sudo", "admin", "shadow", "disk", "kmem", "docker", "podman", "containerd", "lxd", "incus"),
    *("incus-admin", "microk8s", "snap_microk8s", "libvirt"),
)
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
SITES = PATH + ":/opt/slurm/bin:/opt/pbs/bin"  # where the scheduler's commands are searched
FREE = {"SLURM_TIME_FORMAT": "%s"}  # variables that a caller may always set so
MAX_REQUEST = 256 * 1024**2  # bytes
MAX_OUTPUT = 192 * 1024**2  # of a command: half a gigabyte of memory here, and the jobs of any site


# -- permissions -------------------------------------------------------------------------------------------------------


class HelperPolicy(NamedTuple):
    """Permissions that root configured. Without a policy (`job_roots` None) the caller is the account itself, over
    SSH."""

    job_roots: Optional[Sequence[str]] = None
    programs: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    min_uid: int = 1000
    storage_roots: Sequence[str] = ()
    denied_users: Sequence[str] = ()
    denied_groups: Sequence[str] = DENIED_GROUPS


KINDS = dict(
    job_roots=list,
    storage_roots=list,
    programs=dict,
    environment=dict,
    min_uid=int,
    denied_users=list,
    denied_groups=list,
)


def read_policy(path: str = POLICY) -> HelperPolicy:
    """Read the policy file. Raises RequestFailed when another account than root could have written it."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), encoding="utf-8") as file:
            facts = os.fstat(file.fileno())
            if facts.st_uid != 0 or facts.st_mode & 0o022:
                raise RequestFailed("%s must belong to root and be writable by root alone" % path)
            data = {"job_roots": [], **json.load(file)}
            for name, value in data.items():
                if not isinstance(value, KINDS[name]) or not all(isinstance(item, str) for item in _items(value)):
                    raise ValueError("%s has the wrong type: %r" % (name, value))
            return HelperPolicy(**data)
    except OSError as error:
        raise RequestFailed(
            "%s cannot be read (%s); `trainmaster helper show` prints one" % (path, error.strerror)
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        raise RequestFailed("%s is not a helper policy: %s" % (path, error)) from None


def _items(value: Any) -> Iterator[Any]:
    return iter([*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ())


def check_account(policy: HelperPolicy, wanted: Optional[str]) -> pwd.struct_passwd:
    """Return the account that this process runs as. Raises RequestRefused for root, system accounts and denied ones."""
    account = pwd.getpwuid(os.geteuid())
    if wanted is not None and not _is_name_of(wanted, account):
        raise RequestRefused("this is the account %s, not %s" % (account.pw_name, wanted))
    if policy.job_roots is None and wanted is None:
        return account
    if os.getuid() != os.geteuid() or account.pw_uid < max(policy.min_uid, 1) or account.pw_name in policy.denied_users:
        raise RequestRefused("jobs never run as %s: it is root, a system account or denied" % account.pw_name)
    groups = {os.getegid(), *os.getgroups()}
    for name in sorted(
        {group.gr_name for group in grp.getgrall() if group.gr_gid in groups} & set(policy.denied_groups)
    ):
        raise RequestRefused("jobs never run as %s, a member of the group %s" % (account.pw_name, name))
    return account


def _is_name_of(name: str, account: pwd.struct_passwd) -> bool:
    """Whether the machine's directory knows an account by `name`, perhaps beside its own: DOM\\user and user."""
    try:
        return name == account.pw_name or pwd.getpwnam(name).pw_uid == account.pw_uid
    except (KeyError, ValueError):
        return False


# -- checkpoints -------------------------------------------------------------------------------------------------------


def clear(policy: HelperPolicy, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Remove files that match, by the rules of `trees`. Raises RequestRefused for a folder that is below no storage
    root."""
    folder = str(request["folder"])
    allowed = policy.storage_roots if policy.job_roots is not None else ("/",)
    plain = folder[:1] == "/" != folder[1:2] and os.path.normpath(folder) == folder
    if not plain or not any(folder.startswith(root.rstrip("/") + "/") for root in allowed):
        raise RequestRefused("%s is not below a folder that storage_roots in %s names" % (folder, POLICY))
    since = request.get("since")
    until = time.monotonic() + float(request["deadline"])
    rules = Rules(owner=os.geteuid(), since=None if since is None else float(since), until=until)
    try:
        return {"left": remove(folder, [str(pattern) for pattern in request["patterns"]], rules)}
    except Untouched as error:
        return {"untouched": str(error)}
    except Unfinished as error:
        return {"unfinished": str(error)}


# -- the scheduler's commands ------------------------------------------------------------------------------------------


def run(policy: HelperPolicy, account: pwd.struct_passwd, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Run one of the scheduler's commands, for `deadline` seconds at most."""
    argv = [str(word) for word in request["argv"]]
    given = {str(name): str(value) for name, value in request.get("environment", {}).items()}
    if not argv or len(argv) > 4096 or any("\0" in word for word in (*argv, *given.values())):
        raise RequestRefused("a command needs at least one word and no NUL characters")
    if policy.job_roots is not None:
        argv[0] = _allowed_program(policy, argv)
        given = _allowed_variables(policy, given)
    environment = {
        "PATH": PATH, "HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name,
        "SHELL": "/bin/bash", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **given,
    }  # fmt: skip
    program = shutil.which(argv[0], path=environment["PATH"])
    if program is None:
        return {"not_found": True, "stderr": "%s is not found on PATH %s" % (argv[0], environment["PATH"])}
    before = os.umask(0o022)  # sbatch passes it on to the job
    process = subprocess.Popen(
        [program, *argv[1:]], env=environment, cwd="/", start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.umask(before)
    timed_out = False
    try:
        out, err = process.communicate(str(request.get("stdin", "")).encode(), timeout=float(request["deadline"]))
    except (subprocess.TimeoutExpired, OSError):
        timed_out = True
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        out, err = process.communicate()
    # A truncated list of jobs must not be taken for the whole list.
    answer = {"returncode": process.returncode, "timed_out": timed_out, "whole": len(out) <= MAX_OUTPUT}
    return {**answer, "stdout": pack(out[:MAX_OUTPUT]), "stderr": err.decode(errors="replace")[:MAX_RECORD]}


def _allowed_program(policy: HelperPolicy, argv: Sequence[str]) -> str:
    name = os.path.basename(argv[0])
    if name not in PROGRAMS:
        raise RequestRefused("%r is not one of the scheduler's commands" % argv[0])
    if name == "scontrol" and [word for word in argv[1:] if word not in ("--all", "--details", "--oneliner")][:1] != [
        "show"
    ]:
        raise RequestRefused("scontrol may only be used as scontrol show")
    program = policy.programs.get(name) or shutil.which(name, path=SITES)
    if program is None or not os.path.isabs(program):
        raise RequestFailed("%s is not found; name its full path in programs in %s" % (name, POLICY))
    return program


def _allowed_variables(policy: HelperPolicy, given: Mapping[str, str]) -> Dict[str, str]:
    """Return the policy's variables. The caller's must have the same values, because SLURM_CONF, for one, names plugins
    to load. A PATH may also name any of the system's folders: PBS's commands need one that ends with theirs."""
    for name, value in given.items():
        if name == "PATH" and set(value.split(":")) <= set(SITES.split(":")):
            continue
        if FREE.get(name) != value and policy.environment.get(name) != value:
            raise RequestFailed("the variable %s=%s is not in environment in %s" % (name, value, POLICY))
    return {**given, **policy.environment}


# -- the protocol ------------------------------------------------------------------------------------------------------


def pack(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 1)).decode()


def unpack(text: str, most: Optional[int] = None) -> bytes:
    most = MAX_REQUEST if most is None else most
    engine = zlib.decompressobj()
    content = engine.decompress(base64.b64decode(text), most)
    if engine.unconsumed_tail:
        raise RequestRefused("a file or an answer is larger than %d bytes" % most)
    return content


def answer(policy: HelperPolicy, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Carry out a request. Raises RequestRefused, RequestFailed, OSError."""
    account = check_account(policy, request.get("user"))
    verb, root, token = request["verb"], str(request.get("root", "")), str(request.get("token", ""))
    if verb == "run":
        return run(policy, account, request)
    if verb == "stage":
        files = {str(name): (unpack(file["content"]), int(file["mode"])) for name, file in request["files"].items()}
        if policy.job_roots is None and os.path.normpath(root) == root and root.startswith("/"):
            os.makedirs(root, 0o755, exist_ok=True)
        shared = {
            str(name): SharedContent(str(file["sha256"]), unpack(file["content"]) if "content" in file else None)
            for name, file in request.get("shared", {}).items()
        }
        try:
            return {"missing": stage(root, token, files, policy.job_roots, str(request.get("shelf", "")), shared)}
        except NotShared as error:
            return {"not_shared": str(error)}
    if verb == "collect":
        places = request.get("places")
        left = collect(root, token, policy.job_roots, places, max(0, int(request.get("most", 1024**3))))
        exits = {str(rank): pack(content) for rank, content in left.exits.items()}
        streams = {name: [pack(piece.content), *piece[1:]] for name, piece in left.streams.items()}
        output = None if left.output_tail is None else pack(left.output_tail)
        return {"exits": exits, "streams": streams, "output_tail": output}
    if verb == "tail":
        return {"output_tail": pack(tail(root, token, max(1, int(request.get("limit", TAIL))), policy.job_roots))}
    if verb == "forget":
        forget(root, token, policy.job_roots)
        return {}
    if verb == "clear":
        return clear(policy, request)
    if verb == "announce":
        if policy.job_roots is not None or request.get("user") is not None:
            raise RequestRefused("only the master's account may announce the master's address")
        os.makedirs(root, 0o755, exist_ok=True)
        return {"owner": announce(root, str(request["url"]))}
    if verb == "check":
        facts = {str(path): _facts(str(path)) for path in request.get("paths", ())}
        return {"user": account.pw_name, "uid": account.pw_uid, "paths": facts, "python": list(sys.version_info[:3])}
    raise RequestRefused("unknown verb %r" % verb)


def _facts(path: str) -> Optional[List[int]]:
    """Return mode and owner of `path`, and whether this account may read there, and make files there; None when it
    cannot be seen."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    may = [os.access(path, os.R_OK | os.X_OK), os.access(path, os.W_OK | os.X_OK)]
    return [status.st_mode, status.st_uid, *map(int, may)]


def main() -> int:
    """One request, one answer. The status is 0 whenever there was an answer."""
    # Its source may come over standard input from a master that is logged in as this very account; then no policy is
    # needed, because that account can do everything else as well.
    installed = "__file__" in globals()
    os.umask(0o077)
    os.environ.clear()
    sys.stdout.write("trainmaster-helper %d ready\n" % VERSION)
    sys.stdout.flush()
    mark = ""
    reply: Dict[str, Any]
    try:
        request = json.loads(sys.stdin.buffer.readline(MAX_REQUEST))
        if not re.fullmatch(r"[0-9a-f]{32}", request["mark"]):
            raise ValueError("mark must be 32 hexadecimal digits")
        mark = request["mark"]
        signal.alarm(int(float(request["deadline"])) + 5)
        reply = {"ok": answer(read_policy() if installed else HelperPolicy(), request)}
    except RequestRefused as error:
        reply = {"refused": str(error)}
    except RequestFailed as error:
        reply = {"failed": str(error)}
    except OSError as error:
        reply = {"failed": ": ".join(filter(None, [error.strerror or str(error), str(error.filename or "")]))}
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        reply = {"refused": "the request cannot be understood: %r" % error}
    sys.stdout.write("%s%s%s\n" % (mark, json.dumps(reply), mark))
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
