"""`det checkpoint`."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from trainmaster.cli import render
from trainmaster.cli.session import connect
from trainmaster.cli.verbs import Verbs
from trainmaster.client.errors import ClientError
from trainmaster.client.models import Checkpoint


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("download", _download, "copy a checkpoint's files", "det checkpoint download 2f0c… -o best")
    p.add_argument("uuid", help="the checkpoint")
    p.add_argument("-o", "--output-dir", type=Path, help="where to (default: checkpoints/UUID)")
    p.add_argument("-q", "--quiet", action="store_true", help="print only the folder")
    p = verbs.add("describe", _describe, "show a checkpoint", "det checkpoint describe 2f0c…")
    p.add_argument("uuid", help="the checkpoint")
    render.add_format_options(p)


def _download(args: argparse.Namespace) -> None:
    checkpoint = connect(args).checkpoint(args.uuid)
    source = _folder(checkpoint)
    target: Path = args.output_dir or Path("checkpoints") / checkpoint.uuid
    if target.exists() and any(target.iterdir()):
        raise ClientError(f"{target} is not empty; name another folder with -o.")
    if not source.is_dir():
        raise ClientError(
            f"The files of checkpoint {checkpoint.uuid} are not to be found in {source} on this machine. Run this "
            "where that folder is mounted, for example on a login node."
        )
    try:
        shutil.copytree(source, target, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise ClientError(f"Checkpoint {checkpoint.uuid} could not be copied to {target}: {error}.") from None
    if not args.quiet:
        print(f"Copied {render.size(checkpoint.size)} in {len(checkpoint.resources)} files.")
    print(target)


def _folder(checkpoint: Checkpoint) -> Path:
    storage = checkpoint.storage
    if storage.get("type") == "shared_fs":
        root = Path(storage["host_path"])
        return (root / storage["storage_path"] if storage.get("storage_path") else root) / checkpoint.uuid
    if storage.get("type") == "directory":
        return Path(storage["container_path"]) / checkpoint.uuid
    raise ClientError(
        f"Checkpoint {checkpoint.uuid} lies in {storage.get('type')!r} storage, which this client cannot read."
    )


def _describe(args: argparse.Namespace) -> None:
    c = connect(args).checkpoint(args.uuid)
    headers = [
        "Experiment ID",
        "Trial ID",
        "Steps Completed",
        "Report Time",
        "Checkpoint UUID",
        "Metric",
        "Metadata",
        "Size",
    ]
    row = [
        c.experiment_id,
        c.trial_id,
        c.steps_completed,
        render.time(c.reported),
        c.uuid,
        c.metric,
        c.metadata,
        render.size(c.size),
    ]
    render.show(args, headers, [row], c.raw)
