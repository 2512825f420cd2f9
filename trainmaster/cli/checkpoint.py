"""`det checkpoint`: download, show and delete checkpoints."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from trainmaster.cli import render
from trainmaster.cli.session import connect, session
from trainmaster.cli.verbs import Verbs, confirmed
from trainmaster.client.artifacts import Checkpoint
from trainmaster.client.checkpoint_files import Way
from trainmaster.client.experiments import Experiments
from trainmaster.client.views import Views


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("download", _download, "copy a checkpoint's files", "det checkpoint download UUID -o best")
    p.add_argument("uuid", help="the checkpoint")
    p.add_argument("-o", "--output-dir", type=Path, help="where to (default: checkpoints/UUID)")
    p.add_argument("-q", "--quiet", action="store_true", help="print only the folder")
    p.add_argument(
        "--mode",
        choices=[way.value for way in Way],
        default=Way.AUTO.value,
        help="from the storage, where it is mounted or reached, through the master, or whichever works (default)",
    )
    p = verbs.add("describe", _describe, "show a checkpoint", "det checkpoint describe UUID")
    p.add_argument("uuid", help="the checkpoint")
    render.add_format_options(p)
    p = verbs.add("delete", _delete, "delete the files of checkpoints", "det checkpoint delete UUID,UUID --yes")
    p.add_argument("checkpoints_uuids", metavar="UUID,UUID", help="the checkpoints")
    p.add_argument("--yes", action="store_true", help="do not ask")
    p = verbs.add("rm", _remove, "delete some of their files", "det checkpoint rm UUID --glob 'optimizer*' --yes")
    p.add_argument("checkpoints_uuids", metavar="UUID,UUID", help="the checkpoints")
    p.add_argument("--glob", action="append", default=[], help="which files; none: read the list of files again")
    p.add_argument("--yes", action="store_true", help="do not ask")

    p = verbs.add("pin", _pin, "keep checkpoints, whatever a policy says", "det checkpoint pin UUID")
    p.add_argument("checkpoints_uuids", metavar="UUID,UUID", help="the checkpoints")
    p = verbs.add("unpin", _unpin, "let pinned checkpoints go again", "det checkpoint unpin UUID")
    p.add_argument("checkpoints_uuids", metavar="UUID,UUID", help="the checkpoints")
    p = verbs.add("usage", _usage, "show who keeps how much", "det checkpoint usage --by owner")
    p.add_argument("--by", choices=("experiment", "owner", "workspace"), default="experiment", help="what to add up")
    p.add_argument("--limit", type=int, default=100, help="how many, the largest first (default: 100)")
    render.add_format_options(p)


def _download(args: argparse.Namespace) -> None:
    checkpoint = connect(args).checkpoint(args.uuid)
    target = args.output_dir or Path("checkpoints") / checkpoint.uuid
    copy_to(checkpoint, target, quiet=args.quiet, way=Way(args.mode))


def copy_to(checkpoint: Checkpoint, target: Path, *, quiet: bool, way: Way = Way.AUTO) -> None:
    """Copy a checkpoint's files to a new folder, and print it. Raises ClientError."""
    checkpoint.download(target, way)
    if not quiet:
        files = [path for path in checkpoint.resources if not path.endswith("/")]
        print(f"Copied {render.size(checkpoint.size)} in {len(files)} files to:")
    print(target)


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


def _pin(args: argparse.Namespace) -> None:
    Experiments(session(args)).pin_checkpoints(args.checkpoints_uuids.split(","))
    print(f"Pinned {args.checkpoints_uuids}")


def _unpin(args: argparse.Namespace) -> None:
    Experiments(session(args)).pin_checkpoints(args.checkpoints_uuids.split(","), False)
    print(f"Unpinned {args.checkpoints_uuids}")


def _usage(args: argparse.Namespace) -> None:
    usage = Views(session(args)).storage_usage(args.by, args.limit)
    of_experiment = args.by == "experiment"
    headers = ["ID", args.by.capitalize(), *(["Owner", "Workspace"] if of_experiment else []), "Checkpoints", "Size"]
    rows = [
        [
            share.id,
            share.name,
            *([share.owner, share.workspace] if of_experiment else []),
            share.checkpoints,
            render.Bytes(share.size),
        ]
        for share in usage.shares
    ]
    render.show(args, headers, rows, asdict(usage))
    if not (args.json or args.yaml or args.csv):
        print(f"The site's storage is {usage.place or 'not known'}{_room(usage.free, usage.total)}.")


def _room(free: int | None, total: int | None) -> str:
    return "" if free is None else f"; {render.size(free)} of {render.size(total or 0)} are free"


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
