"""`trainmaster helper`: what root installs so that jobs can run as the people who ask for them."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainmaster.config.master import MasterConfig

PARTS = ("steps", "file", "policy", "sudoers")
Read = Callable[[argparse.Namespace], "MasterConfig | None"]


def add_to(parser: argparse.ArgumentParser, read: Read) -> None:
    """`read` gives the configuration that `--config` names; None after its complaints were printed."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    p = verbs.add_parser(
        "show",
        help="print the helper, its configuration, the line for sudo, and the steps to install them",
        description="Print what root installs so that jobs run as their users. Changes nothing.",
        epilog="Example: trainmaster helper show --config master.yaml",
    )
    p.add_argument("part", nargs="?", choices=PARTS, default="steps", help="what to print (default: %(default)s)")
    p.add_argument(
        "--config", type=_path, metavar="FILE", help="the master's configuration: names folders and programs"
    )
    p.add_argument("--account", help="the account that the master runs under (default: trainmaster)")
    p.add_argument("--group", help="the group of those whose jobs it may run (default: hpcusers)")
    p.set_defaults(run=lambda args: _show(args, read), parser=p)


def _path(text: str) -> object:
    from pathlib import Path

    return Path(text)


def _show(args: argparse.Namespace, read: Read) -> int:
    from trainmaster.config.storage import SharedFs
    from trainmaster.dispatchers.cluster.access import helper_client, setup
    from trainmaster.dispatchers.cluster.access.config import HELPER
    from trainmaster.dispatchers.cluster.jobfolder import helper

    if args.part == "file":
        sys.stdout.write(helper_client.own_source().decode())
        return 0
    config = read(args)
    if config is None:
        return 1
    managers = [(manager, needs) for manager in config.managers if (needs := manager.helper_needs())]
    roots = [manager.job_storage_root for manager, _ in managers if manager.job_storage_root]
    environment = {name: value for _, needs in managers for name, value in needs.environment.items()}
    # The PATH of the scheduler's commands, where it is not one that the helper takes from anybody.
    usual = set(helper.SITES.split(":"))
    if path := next((needs.path for _, needs in managers if not set(needs.path.split(":")) <= usual), None):
        environment["PATH"] = path
    # On a machine that has the scheduler's commands; elsewhere the helper looks for them itself.
    programs = {name: location for name in helper.PROGRAMS if (location := shutil.which(name, path=helper.SITES))}
    for _, needs in managers:
        programs.update(needs.commands)
    program = next((needs.program for _, needs in managers if needs.program != HELPER), HELPER)
    account, group = args.account or setup.ACCOUNT, args.group or setup.GROUP
    storage = config.checkpoint_storage
    storages = [storage.root] if isinstance(storage, SharedFs) else []
    policy = setup.policy(roots or ["/shared/trainmaster/jobs"], programs, environment, storages)
    match args.part:
        case "policy":
            sys.stdout.write(policy)
        case "sudoers":
            print(setup.sudoers_line(account, program, group))
        case _:
            sys.stdout.write(
                setup.steps(policy, roots or ["/shared/trainmaster/jobs"], account, program, group, storages)
            )
    return 0
