"""`det job`."""

from __future__ import annotations

import argparse

from trainmaster.cli import render
from trainmaster.cli.session import connect
from trainmaster.cli.verbs import Verbs, add_paging


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "the queue, and why each job waits", "det job list", ["ls"])
    p.add_argument("-p", "--resource-pool", metavar="POOL", help="only this pool")
    p.add_argument("--reverse", action="store_true", help="the newest first")
    add_paging(p, 100)
    render.add_format_options(p)


def _list(args: argparse.Namespace) -> None:
    found = connect(args).jobs(
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
        for job in found
    ]
    render.show(args, headers, rows, [dict(job.raw) for job in found])
