"""`det slot`: list, enable and disable single slots of agents."""

from __future__ import annotations

import argparse

from trainmaster.cli import render
from trainmaster.cli.session import connect
from trainmaster.cli.verbs import Verbs, natural


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "list slots with what runs on them", "det slot list", ["ls"])
    render.add_format_options(p)
    for name, run, text in (
        ("enable", _enable, "use a slot again"),
        ("disable", _disable, "do not use a slot any more, and end what runs on it"),
    ):
        p = verbs.add(name, run, text, f"det slot {name} host1 0")
        p.add_argument("agent_id", metavar="AGENT")
        p.add_argument("slot_id", type=natural, metavar="SLOT")


def _list(args: argparse.Namespace) -> None:
    agents = connect(args).agents()
    headers = ["Agent ID", "Resource Pool", "Slot ID", "Enabled", "Draining", "Allocation ID", "Type", "Device"]
    entries = [(agent, slot) for agent in agents for slot in agent["slots"].values()]
    rows = [
        [
            agent["id"],
            ", ".join(agent["resourcePools"]),
            slot["id"],
            slot["enabled"],
            slot["draining"],
            slot["container"]["parent"] if slot["container"] else "FREE",
            slot["device"]["type"].removeprefix("TYPE_").lower(),
            slot["device"]["brand"],
        ]
        for agent, slot in entries
    ]
    render.show(args, headers, rows, [{"agentId": agent["id"], **slot} for agent, slot in entries])


def _enable(args: argparse.Namespace) -> None:
    connect(args).enable_agent(args.agent_id, args.slot_id)
    print(f"Enabled slot {args.slot_id} of agent {args.agent_id}.")


def _disable(args: argparse.Namespace) -> None:
    connect(args).disable_agent(args.agent_id, args.slot_id)
    print(f"Disabled slot {args.slot_id} of agent {args.agent_id}.")
