"""`det checkpoint`."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.cli import render
from trainmaster.cli.session import connect
from trainmaster.cli.verbs import Verbs
from trainmaster.client.errors import ClientError
from trainmaster.client.models import Checkpoint


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("download", _download, "copy a checkpoint's files", "det checkpoint download UUID -o best")
    p.add_argument("uuid", help="the checkpoint")
    p.add_argument("-o", "--output-dir", type=Path, help="where to (default: checkpoints/UUID)")
    p.add_argument("-q", "--quiet", action="store_true", help="print only the folder")
    p = verbs.add("describe", _describe, "show a checkpoint", "det checkpoint describe UUID")
    p.add_argument("uuid", help="the checkpoint")
    render.add_format_options(p)


def _download(args: argparse.Namespace) -> None:
    checkpoint = connect(args).checkpoint(args.uuid)
    target: Path = args.output_dir or Path("checkpoints") / checkpoint.uuid
    if checkpoint.state == "DELETED":
        raise ClientError(f"The files of checkpoint {checkpoint.uuid} were deleted.")
    source = folder(checkpoint)
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise ClientError(f"{target} is there already; name another folder with -o.")
    if not source.is_dir():
        raise ClientError(
            f"The files of checkpoint {checkpoint.uuid} are not to be found in {source} on this machine. Run this "
            "where that folder is mounted, for example on a login node."
        )
    try:
        _copy(checkpoint, source, target)
    except OSError as error:
        raise ClientError(f"Checkpoint {checkpoint.uuid} could not be copied to {target}: {error}.") from None
    if not args.quiet:
        files = [path for path in checkpoint.resources if not path.endswith("/")]
        print(f"Copied {render.size(checkpoint.size)} in {len(files)} files to:")
    print(target)


def folder(checkpoint: Checkpoint) -> Path:
    """Where its files lie, on a machine that sees the storage. Raises ClientError."""
    storage = checkpoint.storage
    if storage.get("type") == "shared_fs":
        root = Path(storage["host_path"])
        return (root / storage["storage_path"] if storage.get("storage_path") else root) / checkpoint.uuid
    if storage.get("type") == "directory":
        return Path(storage["container_path"]) / checkpoint.uuid
    raise ClientError(
        f"Checkpoint {checkpoint.uuid} lies in {storage.get('type')!r} storage, which this client cannot read."
    )


def _copy(checkpoint: Checkpoint, source: Path, target: Path) -> None:
    """Copy to a folder beside the target and rename it when it is whole. Raises OSError and ClientError."""
    import shutil

    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        try:
            shutil.copytree(source, partial)
        except shutil.Error as errors:  # a list of (source, target, why)
            raise OSError("; ".join(f"{name}: {why}" for name, _, why in errors.args[0][:3])) from None
        for path, size in checkpoint.resources.items():
            copied = partial / path
            if not copied.exists() or (copied.is_file() and copied.stat().st_size != size):
                raise ClientError(f"Checkpoint {checkpoint.uuid} is damaged: {path} is missing or not of {size} bytes.")
        if target.exists():
            target.rmdir()
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _describe(args: argparse.Namespace) -> None:
    c = connect(args).checkpoint(args.uuid)
    headers = [
        "Experiment ID",
        "Trial ID",
        "Steps Completed",
        "State",
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
        c.state,
        render.Moment(c.reported),
        c.uuid,
        c.metric,
        c.metadata,
        render.Bytes(c.size),
    ]
    render.show(args, headers, [row], c.raw)
