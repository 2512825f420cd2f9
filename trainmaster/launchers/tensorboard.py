"""`python3 -m trainmaster.launchers.tensorboard --show=NAME=PLACE... -- ARGUMENTS...`: a TensorBoard of folders, and of
files in object stores, which are fetched while they grow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from trainmaster.launchers.event_mirror import INTERVAL, STORED, EventMirror
from trainmaster.launchers.service import Service


def main(arguments: Sequence[str]) -> int:
    """Run TensorBoard; returns the status to leave with."""
    shows, rest = parse(arguments)
    service = Service()
    logs = service.run_dir / "tensorboard"
    gather({name: folder for name, folder in shows.items() if not folder.startswith(STORED)}, logs)
    stored = {name: logs / name for name, folder in shows.items() if folder.startswith(STORED)}
    mirror = EventMirror(service.master, service.info.allocation_id, stored) if stored else None
    if mirror is not None:
        mirror.fetch()
    return service.run(
        lambda: command(logs, service.address, service.port, service.prefix, rest),
        meanwhile=mirror.fetch if mirror is not None else None,
        every=INTERVAL,
    )


def parse(arguments: Sequence[str]) -> Tuple[Dict[str, str], List[str]]:
    """Parse folders by the names under which they are shown, and the arguments after `--`. Raises SystemExit."""
    shows: Dict[str, str] = {}
    for place, word in enumerate(arguments):
        if word == "--":
            return shows, list(arguments[place + 1 :])
        name, _, folder = word[len("--show=") :].partition("=")
        if not word.startswith("--show=") or not name or not folder:
            raise SystemExit("%r is not --show=NAME=FOLDER" % word)
        shows[name] = folder
    return shows, []


def gather(shows: Dict[str, str], target: Path) -> None:
    """Make one folder with a link for each, so that what is added to the folders later is shown as well."""
    target.mkdir()
    for name, folder in shows.items():
        (target / name).symlink_to(folder)


def command(logs: Path, address: str, port: int, prefix: str, rest: Sequence[str]) -> List[str]:
    """Build TensorBoard's argument vector."""
    return [
        "tensorboard",
        "--logdir=%s" % logs,
        "--host=%s" % address,
        "--port=%d" % port,
        "--path_prefix=%s" % prefix.rstrip("/"),
        *rest,
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
