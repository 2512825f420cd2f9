"""`det master`."""

from __future__ import annotations

import argparse
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.session import connect
from trainmaster.cli.verbs import Verbs


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("info", _info, "what the master is", "det master info")
    p.add_argument("--json", action="store_true", help="print JSON")
    p = verbs.add("pools", list_pools, "resource pools with their slots", "det master pools")
    render.add_format_options(p)
    p = verbs.add(
        "resume", _resume, "go on with a pool that rests after failures (administrators)", "det master resume gpu"
    )
    p.add_argument("pool", metavar="POOL")


def _resume(args: argparse.Namespace) -> None:
    connect(args).resume_pool(args.pool)
    print(f"Pool {args.pool} goes on.")


def _info(args: argparse.Namespace) -> None:
    info = connect(args).info()
    if args.json:
        render.show_json(info)
    else:
        print(render.yaml(info), end="")


def list_pools(args: argparse.Namespace) -> None:
    pools = connect(args).pools()
    headers = ["Name", "Cluster", "Slot Type", "Slots", "Used", "Nodes", "Default", "State", "Description"]
    rows = [
        [
            p["name"],
            p["clusterName"],
            p["slotType"].removeprefix("TYPE_").lower(),
            p["slotsAvailable"],
            p["slotsUsed"],
            p["numAgents"],
            p["defaultComputePool"],
            _state(p),
            p["description"],
        ]
        for p in pools
    ]
    render.show(args, headers, rows, pools)


def _state(pool: dict[str, Any]) -> str:
    resting = (pool.get("details") or {}).get("resting")
    return f"rests: {resting['failures']} jobs in a row were not started" if resting else "up"
