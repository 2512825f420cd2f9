"""`det master`."""

from __future__ import annotations

import argparse

from trainmaster.cli import render
from trainmaster.cli.session import connect
from trainmaster.cli.verbs import Verbs


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("info", _info, "what the master is", "det master info")
    p.add_argument("--json", action="store_true", help="print JSON")
    p = verbs.add("pools", _pools, "resource pools with their slots", "det master pools")
    render.add_format_options(p)


def _info(args: argparse.Namespace) -> None:
    info = connect(args).info()
    if args.json:
        render.show_json(info)
    else:
        print(render.yaml(info), end="")


def _pools(args: argparse.Namespace) -> None:
    pools = connect(args).pools()
    headers = ["Name", "Cluster", "Slot Type", "Slots", "Used", "Nodes", "Default", "Description"]
    rows = [
        [
            p["name"],
            p["clusterName"],
            p["slotType"].removeprefix("TYPE_").lower(),
            p["slotsAvailable"],
            p["slotsUsed"],
            p["numAgents"],
            p["defaultComputePool"],
            p["description"],
        ]
        for p in pools
    ]
    render.show(args, headers, rows, pools)
