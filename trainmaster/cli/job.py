"""`det job`: show and change the job queue."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.session import UsageError, connect
from trainmaster.cli.verbs import Verbs, add_paging, positive


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "list the queue, with the reason why each job waits", "det job list", ["ls"])
    p.add_argument("-p", "--resource-pool", metavar="POOL", help="only this pool")
    p.add_argument("--reverse", action="store_true", help="the newest first")
    add_paging(p, 100)
    render.add_format_options(p)
    p = verbs.add("update", _update, "change a job's place in the queue", "det job update 0b8e... --priority 10", ["u"])
    p.add_argument("job_id", metavar="ID", help="as `det job list` shows it")
    p.add_argument("-p", "--priority", type=positive, metavar="N", help="1 is served first, 99 last")
    p.add_argument("-w", "--weight", type=float, metavar="X", help="its weight in fair-share scheduling")
    p.add_argument("--resource-pool", metavar="POOL", help="move it there; a running job saves its work first")
    place = p.add_mutually_exclusive_group()
    place.add_argument("--ahead-of", metavar="ID", help="serve it just before this job")
    place.add_argument("--behind-of", metavar="ID", help="serve it just after this job")
    p = verbs.add(
        "update-batch", _update_batch, "change several jobs", "det job update-batch ID.priority=1 ID.resource-pool=gpu"
    )
    p.add_argument("operation", nargs="+", metavar="ID.KEY=VALUE", help=f"KEY: {', '.join(BATCH)}")


# Key of update-batch -> the API's name, how its value is read
BATCH: dict[str, tuple[str, Callable[[str], Any]]] = {
    "priority": ("priority", int),
    "weight": ("weight", float),
    "resource-pool": ("resourcePool", str),
    "ahead-of": ("aheadOf", str),
    "behind-of": ("behindOf", str),
}


def _update(args: argparse.Namespace) -> None:
    changes = {
        "priority": args.priority,
        "weight": args.weight,
        "resourcePool": args.resource_pool,
        "aheadOf": args.ahead_of,
        "behindOf": args.behind_of,
    }
    if all(value is None for value in changes.values()):
        raise UsageError("give a change: --priority, --weight, --resource-pool, --ahead-of or --behind-of")
    connect(args).update_job(args.job_id, **changes)


def _update_batch(args: argparse.Namespace) -> None:
    changes = [_operation(text) for text in args.operation]
    master = connect(args)
    for job_id, key, value in changes:
        master.update_job(job_id, **{key: value})


def _operation(text: str) -> tuple[str, str, Any]:
    """Parse ID.KEY=VALUE; keys may have underscores, as in Determined's client. Raises UsageError."""
    what, equals, value = text.partition("=")
    job_id, _, key = what.rpartition(".")
    operation = BATCH.get(key.replace("_", "-"))
    if not equals or not job_id or operation is None:
        raise UsageError(f"{text!r} is not ID.KEY=VALUE with a KEY of {', '.join(BATCH)}")
    try:
        return job_id, operation[0], operation[1](value)
    except ValueError:
        raise UsageError(f"{text!r}: {value!r} is not a number") from None


def _list(args: argparse.Namespace) -> None:
    jobs = connect(args).jobs(
        pool=args.resource_pool,
        limit=args.limit,
        offset=args.offset,
        everything=args.pages == "all",
        reverse=args.reverse,
    )
    headers = ["#", "ID", "Type", "Job Name", "Submitted", "Slots (acquired/needed)", "State", "User", "Why It Waits"]
    rows = [
        [
            job.jobs_ahead if job.state == "QUEUED" else None,
            job.job_id,
            job.type,
            f"{job.name} ({job.entity_id})" if job.type == "EXPERIMENT" else job.name,
            render.Moment(job.submitted),
            f"{job.slots_acquired}/{job.slots_needed}",
            job.state,
            job.owner,
            job.explanation,
        ]
        for job in jobs
    ]
    render.show(args, headers, rows, [dict(job.raw) for job in jobs])
