"""`trainmaster agent`: a Docker host that works for a master."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import socket
import sys
from pathlib import Path

TOKEN_VARIABLE = "DET_AGENT_TOKEN"  # noqa: S105
MIN_TOKEN = 16
RESERVE = 1 << 30  # bytes of the host's memory that no container gets


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", required=True, metavar="URL", help="the master's address")
    parser.add_argument("--agent-id", metavar="NAME", help="what this host is called (default: its host name)")
    parser.add_argument(
        "--pool", default="", metavar="POOL", help="resource pool to join (default: the master's first)"
    )
    parser.add_argument("--slots", type=int, metavar="N", help="how many slots to offer (default: all there are)")
    parser.add_argument(
        "--slot-type",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto takes NVIDIA GPUs where there are any",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"file with the key by which agents enrol, needed once (default: {TOKEN_VARIABLE})",
    )
    parser.add_argument(
        "--job-user", metavar="NAME", help="account of jobs that name none; wanted when the agent runs as root"
    )
    parser.add_argument(
        "--linked-users",
        action="store_true",
        help="let jobs run as the ordinary accounts of this host that users and workspaces are linked to; wants root",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder for job folders (default: /var/lib/trainmaster-agent/NAME)"
    )
    parser.add_argument(
        "--mount-root",
        action="append",
        default=[],
        metavar="DIR",
        help="jobs may mount only what lies below it; may be given again (default: whatever the job's account reaches)",
    )
    parser.add_argument(
        "--pids-limit",
        type=int,
        default=32768,
        metavar="N",
        help="processes and threads of one container at most (default: %(default)s; -1: no limit)",
    )
    parser.add_argument(
        "--docker", metavar="ADDRESS", help="the Docker daemon (default: DOCKER_HOST or its usual socket)"
    )
    parser.add_argument(
        "--certificate", type=Path, metavar="FILE", help="certificates to trust when the master uses TLS"
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning"), default="info")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Until SIGINT or SIGTERM; containers go on. SIGUSR1: take no more jobs. Exit status 1 for a failure told in one
    sentence."""
    logging.basicConfig(
        stream=sys.stderr, level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        return _serve(args)
    except CannotRun as error:
        print(f"trainmaster agent: {error}", file=sys.stderr)
        return 1


class CannotRun(Exception):
    """The agent cannot work as it was started; the message says why and what to do."""


def _serve(args: argparse.Namespace) -> int:
    from trainmaster.agent_protocol.messages import AGENT_ID
    from trainmaster.client.address import canonical_url
    from trainmaster.client.errors import ClientError

    try:
        from trainmaster.agent.agent import Agent, AgentIdentity, data_folder
        from trainmaster.agent.engine import Engine, EngineAway
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error.name} is missing: pip install 'trainmaster[agent]'.") from None
    from trainmaster.agent.account import NoAccount, account_for
    from trainmaster.agent.folders import Folders
    from trainmaster.agent.master_link import MasterLink, MustLeave
    from trainmaster.agent.mounts import Mounts
    from trainmaster.agent.slots import NoSlots, find_slots

    agent_id = args.agent_id or socket.gethostname()
    if not re.fullmatch(AGENT_ID, agent_id):
        raise CannotRun(f"{agent_id!r} cannot be an agent's name: letters, digits, '_', '.' and '-'. Set --agent-id.")
    try:
        url = canonical_url(args.master)
        account_for(None, args.job_user)
        slots = find_slots(args.slot_type, args.slots)
        folders = Folders(data_folder(args.data, agent_id))
        engine = Engine(agent_id, args.docker)
        engine_data, memory = engine.facts()
        mounts = Mounts(args.mount_root, [str(data_folder(args.data, agent_id)), engine_data])
        logging.getLogger(__name__).info("Docker %s, %d slots, agent %s", engine.version(), len(slots), agent_id)
    except (ClientError, NoAccount, NoSlots) as error:
        raise CannotRun(str(error)) from None
    except EngineAway as error:
        raise CannotRun(f"{error}. Is it running, and may {os.environ.get('USER') or 'this account'} use it?") from None
    except OSError as error:
        raise CannotRun(f"{error.filename} cannot be made or entered: {error.strerror}. Set --data.") from None
    most = max(memory - RESERVE, memory // 2)  # a container that takes all memory is ended before the host suffers
    identity = AgentIdentity(
        agent_id,
        socket.gethostname(),
        args.pool,
        slots,
        _addresses(url),
        args.job_user,
        most,
        args.pids_limit,
        args.linked_users,
    )
    secret = folders.secret()
    key = _key(args.token_file, needed=not secret)
    link = MasterLink(url, agent_id, secret, str(args.certificate) if args.certificate else None)
    agent = Agent(identity, link, engine, folders, key, mounts)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    signal.signal(signal.SIGUSR1, lambda *_: agent.drain())
    print(f"agent {agent_id} works for {url}", flush=True)
    try:
        agent.run()
    except MustLeave as error:
        raise CannotRun(str(error)) from None
    return 0


def _key(path: Path | None, *, needed: bool) -> str:
    """Return the key of the master's agents; empty where there is none and it is not `needed`. Raises CannotRun."""
    key = os.environ.pop(TOKEN_VARIABLE, "").strip()
    if path is not None:
        try:
            key = path.read_text().strip()
        except OSError as error:
            if needed:
                raise CannotRun(f"--token-file {path} cannot be read: {error.strerror}.") from None
            return ""
    if not key and not needed:
        return ""
    if len(key) < MIN_TOKEN or not key.isascii() or not key.isprintable():
        raise CannotRun(
            f"The key of the master's agents is missing: copy the file agent-token from the master's jobs folder, and "
            f"name it with --token-file, or set {TOKEN_VARIABLE}. It is needed once."
        )
    return key


def _addresses(url: str) -> tuple[str, ...]:
    """Return the address of this host that the master sees; no packet is sent for it."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    try:
        family, kind, _, _, address = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return (str(probe.getsockname()[0]),)
    except OSError:
        return ()
