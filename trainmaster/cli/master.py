"""`det master`: show the master, its pools, log and configuration, and set its banner."""

from __future__ import annotations

import argparse
import datetime as dt
from typing import TYPE_CHECKING

from trainmaster.cli import render
from trainmaster.cli.session import connect, say, session
from trainmaster.cli.verbs import LEVELS, Verbs, natural
from trainmaster.client.cluster import ClusterView
from trainmaster.client.policies import Policies

if TYPE_CHECKING:
    from trainmaster.client import wire


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("info", _info, "show version and settings of the master", "det master info")
    p.add_argument("--json", action="store_true", help="print JSON")
    p = verbs.add("pools", list_pools, "list resource pools with their slots", "det master pools")
    render.add_format_options(p)
    p = verbs.add(
        "resume", _resume, "resume a pool that is paused after failures (administrators)", "det master resume gpu"
    )
    p.add_argument("pool", metavar="POOL")
    p = verbs.add("logs", _logs, "print its own log (administrators)", "det master logs --tail 20 -f")
    p.add_argument("-f", "--follow", action="store_true", help="continue with new lines")
    p.add_argument("--tail", type=natural, default=0, metavar="N", help="the last N lines")
    config = verbs.group("config", "its configuration (administrators)")
    p = config.add("show", _show_config, "print it without secrets", "det master config show")
    p.add_argument("--json", action="store_true", help="print JSON")
    p = config.add(
        "set", _set_config, "change it until the master is restarted", "det master config set --log.level DEBUG"
    )
    p.add_argument("--log.level", dest="level", type=str.upper, choices=LEVELS, required=True, help="how much it logs")
    message = verbs.group("cluster-message", "the banner that all users see")
    p = message.add("get", _get_message, "show what was set (administrators)", "det master cluster-message get")
    p.add_argument("--json", action="store_true", help="print JSON")
    text = "set it (administrators)"
    p = message.add("set", _set_message, text, "det master cluster-message set -m 'Back at noon' -d 2h")
    p.add_argument("-m", "--message", required=True, help="its text")
    p.add_argument("-s", "--start", metavar="TIME", help="RFC 3339 time (default: now)")
    end = p.add_mutually_exclusive_group()
    end.add_argument("-e", "--end", metavar="TIME", help="RFC 3339 time (default: until it is cleared)")
    end.add_argument("-d", "--duration", metavar="TIME", help="such as 2w, 1d or 2h30m")
    message.add("clear", _clear_message, "remove it (administrators)", "det master cluster-message clear")


def _logs(args: argparse.Namespace) -> None:
    for entry in ClusterView(session(args)).master_log(offset=-args.tail, follow=args.follow, notice=say):
        level = entry["level"].removeprefix("LOG_LEVEL_")
        print(f"{entry['timestamp']} [{level}]: {entry['message']}", flush=args.follow)


def _show_config(args: argparse.Namespace) -> None:
    config = ClusterView(session(args)).config()
    if args.json:
        render.show_json(config)
    else:
        print(render.yaml(config), end="")


def _set_config(args: argparse.Namespace) -> None:
    ClusterView(session(args)).set_log_level(args.level)
    print(f"The master logs {args.level} and above until it is restarted.")


def _get_message(args: argparse.Namespace) -> None:
    message = Policies(session(args)).message()
    if args.json:
        render.show_json(message)
    else:
        print(render.yaml(message) if message else "There is no message.", end="" if message else "\n")


def _set_message(args: argparse.Namespace) -> None:
    start = args.start or dt.datetime.now(dt.UTC).isoformat()
    Policies(session(args)).set_message(args.message, start, args.end, args.duration)
    print("Set the message.")


def _clear_message(args: argparse.Namespace) -> None:
    Policies(session(args)).clear_message()
    print("Removed the message.")


def _resume(args: argparse.Namespace) -> None:
    connect(args).resume_pool(args.pool)
    print(f"Resumed pool {args.pool}.")


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


def _state(pool: wire.ResourcePool) -> str:
    resting = (pool.get("details") or {}).get("resting")
    return f"paused: {resting['failures']} jobs in a row failed to start" if resting else "up"
