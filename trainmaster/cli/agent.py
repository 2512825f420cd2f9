"""`det agent`: list, enable, disable and revoke the agents on Docker hosts."""

from __future__ import annotations

import argparse
import sys

from trainmaster.cli import render
from trainmaster.cli.session import UsageError, connect
from trainmaster.cli.verbs import Verbs


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "list agents, and nodes of schedulers, with their slots", "det agent list", ["ls"])
    render.add_format_options(p)
    p = verbs.add("enable", _enable, "let an agent take jobs again", "det agent enable host1")
    _add_which(p)
    p = verbs.add(
        "disable", _disable, "give an agent no more jobs, and end its present ones", "det agent disable host1"
    )
    _add_which(p)
    p.add_argument("--drain", action="store_true", help="let its present jobs finish")
    p = verbs.add(
        "revoke",
        _revoke,
        "invalidate an agent's secret, for example when its host is compromised",
        "det agent revoke host1",
    )
    p.add_argument("agent_id", metavar="AGENT")


def _add_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent_id", nargs="?", metavar="AGENT")
    parser.add_argument("--all", action="store_true", help="all agents")


def _list(args: argparse.Namespace) -> None:
    agents = connect(args).agents()
    headers = [
        "Agent ID",
        "Version",
        "Registered Time",
        "Slots",
        "Containers",
        "Resource Pool",
        "Enabled",
        "Draining",
        "Addresses",
        "Problem",
    ]
    rows = [
        [
            agent["id"],
            agent.get("trainmasterVersion", agent["version"]),
            render.Moment(agent["registeredTime"] or ""),
            len(agent["slots"]),
            len(agent["containers"]),
            ", ".join(agent["resourcePools"]),
            agent["enabled"],
            agent["draining"],
            ", ".join(agent["addresses"]),
            agent.get("problem") or ("" if agent.get("up", True) else "does not report"),
        ]
        for agent in agents
    ]
    render.show(args, headers, rows, agents)


def _enable(args: argparse.Namespace) -> None:
    master = connect(args)
    for name in _named(args, [agent["id"] for agent in master.agents()] if args.all else []):
        master.enable_agent(name)
        print(f"Enabled agent {name}.", file=sys.stderr)


def _disable(args: argparse.Namespace) -> None:
    master = connect(args)
    for name in _named(args, [agent["id"] for agent in master.agents()] if args.all else []):
        master.disable_agent(name, drain=args.drain)
        print(f"Disabled agent {name}.", file=sys.stderr)


def _revoke(args: argparse.Namespace) -> None:
    connect(args).revoke_agent(args.agent_id)
    print(
        f"Revoked agent {args.agent_id}: its secret is no longer valid. Agents that enrol from now on, including this "
        "one, need the new key in the master's agent-token file.",
        file=sys.stderr,
    )


def _named(args: argparse.Namespace, agents: list[str]) -> list[str]:
    if bool(args.agent_id) == bool(args.all):
        raise UsageError("give one agent, or --all")
    return agents if args.all else [args.agent_id]
