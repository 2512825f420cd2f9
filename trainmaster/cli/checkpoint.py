"""`det checkpoint`."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.cli import render
from trainmaster.cli.session import connect, session
from trainmaster.cli.verbs import Verbs, confirmed
from trainmaster.client.errors import ClientError
from trainmaster.client.experiments import Experiments
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
    p = verbs.add("delete", _delete, "delete the files of checkpoints", "det checkpoint delete UUID,UUID --yes")
    p.add_argument("checkpoints_uuids", metavar="UUID,UUID", help="the checkpoints")
    p.add_argument("--yes", action="store_true", help="do not ask")
    p = verbs.add("rm", _remove, "delete some of their files", "det checkpoint rm UUID --glob 'optimizer*' --yes")
    p.add_argument("checkpoints_uuids", metavar="UUID,UUID", help="the checkpoints")
    p.add_argument("--glob", action="append", default=[], help="which files; none: read the list of files anew")
    p.add_argument("--yes", action="store_true", help="do not ask")


def _download(args: argparse.Namespace) -> None:
    checkpoint = connect(args).checkpoint(args.uuid)
    copy_to(checkpoint, args.output_dir or Path("checkpoints") / checkpoint.uuid, quiet=args.quiet)


def copy_to(checkpoint: Checkpoint, target: Path, *, quiet: bool) -> None:
    """Copy a checkpoint's files to a folder that is not there yet. Raises ClientError."""
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
    if not quiet:
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


def _delete(args: argparse.Namespace) -> int:
    uuids = args.checkpoints_uuids.split(",")
    if not confirmed(args, f"Delete the files of {len(uuids)} checkpoints?"):
        print("Nothing was deleted.")
        return 1
    Experiments(session(args)).delete_checkpoints(uuids)
    print(f"Deletion of {', '.join(uuids)} is in progress")
    return 0


def _remove(args: argparse.Namespace) -> int:
    uuids = args.checkpoints_uuids.split(",")
    if args.glob and not confirmed(
        args, f"Delete files that match {', '.join(args.glob)} of {len(uuids)} checkpoints?"
    ):
        print("Nothing was deleted.")
        return 1
    Experiments(session(args)).remove_checkpoint_files(uuids, args.glob)
    what = "Removal of files from" if args.glob else "Reading the files of"
    print(f"{what} {', '.join(uuids)} is in progress")
    return 0


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
