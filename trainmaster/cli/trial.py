"""`det trial`: show trials, their logs and their story, end them, and download their checkpoints."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from trainmaster.cli import render, workloads
from trainmaster.cli.following import print_logs
from trainmaster.cli.session import connect, session
from trainmaster.cli.verbs import Verbs, add_days, add_log_filters, add_paging, positive
from trainmaster.client.errors import ClientError
from trainmaster.client.experiments import Experiments
from trainmaster.client.master import Master
from trainmaster.client.models import StoryEvent, Trial


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add(
        "describe",
        _describe,
        "show a trial with its attempts, metrics and checkpoints",
        "det trial describe 3 --metrics",
    )
    _add_id(p)
    p.add_argument("--metrics", action="store_true", help="with the training metrics")
    p.add_argument("--metrics-summary", action="store_true", help="print only the summary of each metric, as JSON")
    add_paging(p, 1000)
    render.add_format_options(p)
    p = verbs.add("logs", _logs, "print a trial's log", "det trial logs -f 3")
    _add_id(p)
    add_log_filters(p)
    p = verbs.add("kill", _kill, "end a trial at once", "det trial kill 3")
    _add_id(p)
    p = verbs.add("download", _download, "copy a checkpoint of a trial", "det trial download 3 --best")
    _add_id(p)
    which = p.add_mutually_exclusive_group(required=True)
    which.add_argument("--best", action="store_true", help="the best by the searcher's metric")
    which.add_argument("--latest", action="store_true", help="the latest")
    which.add_argument("--uuid", help="this one")
    p.add_argument("-o", "--output-dir", type=Path, help="where to (default: checkpoints/UUID)")
    p.add_argument("-q", "--quiet", action="store_true", help="print only the folder")
    settings = verbs.group("set", "change one setting")
    p = settings.add(
        "log-retention", _set_retention, "set how long its logs are kept", "det trial set log-retention 3 --days 9"
    )
    _add_id(p)
    add_days(p)
    p = verbs.add("story", _story, "show what happened to the trial and why, event by event", "det trial story 3")
    _add_id(p)
    render.add_format_options(p)


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial_id", type=positive, help="the trial's number")


def _describe(args: argparse.Namespace) -> None:
    master = connect(args)
    trial = master.trial(args.trial_id)
    if args.metrics_summary:
        render.show_json(trial.summary)
        return
    loads = master.workloads(args.trial_id, limit=args.limit, offset=args.offset, everything=args.pages == "all")
    if args.json or args.yaml:
        render.show(args, (), (), {**trial.raw, "workloads": loads})
        return
    headers, rows = workloads.table(((trial.id, load) for load in loads), training=args.metrics, trials=False)
    if not args.csv:
        _print_head(master, trial)
    render.show(args, headers, rows, None)


def _print_head(master: Master, trial: Trial) -> None:
    headers = ["Experiment ID", "State", "H-Params", "Best Metric", "Restarts", "Started", "Ended"]
    row = [trial.experiment_id, trial.state, trial.hparams, trial.best_metric, trial.restarts]
    print(render.table(headers, [[*row, render.Moment(trial.started), render.Moment(trial.ended or "")]]))
    if trial.reason:
        print(f"\n {trial.reason}")
    headers = ["Attempt", "Job", "State", "Nodes", "Started", "Ended", "Exit", "Why"]
    rows: list[list[Any]] = [
        [
            int(a["allocationId"].rpartition(".")[2]),
            a.get("jobId"),
            a["state"].removeprefix("STATE_"),
            a.get("nodes") or [],
            render.Moment(a.get("startTime") or ""),
            render.Moment(a.get("endTime") or ""),
            a.get("statusCode"),
            a.get("exitReason") or a.get("explanation"),
        ]
        for a in master.task(trial.task_id)["allocations"]
    ]
    print(f"\n{render.table(headers, rows)}\n")


def _logs(args: argparse.Namespace) -> None:
    print_logs(connect(args), args.trial_id, args)


def _kill(args: argparse.Namespace) -> None:
    master = connect(args)
    trial = master.trial(args.trial_id)
    if trial.ended_for_good:
        print(f"Trial {trial.id} has already ended: {trial.state}.")
        return
    master.kill_trial(trial.id)
    print(f"Killed trial {trial.id}")


def _download(args: argparse.Namespace) -> None:
    from trainmaster.cli.checkpoint import copy_to

    master = connect(args)
    if args.uuid:
        checkpoint = master.checkpoint(args.uuid)
        if checkpoint.trial_id != args.trial_id:
            raise ClientError(f"Checkpoint {args.uuid} does not belong to trial {args.trial_id}.")
    else:
        checkpoints = master.trial_checkpoints(args.trial_id, best=args.best)
        if not checkpoints:
            raise ClientError(f"Trial {args.trial_id} has no checkpoint.")
        checkpoint = checkpoints[0] if args.best else checkpoints[-1]
    copy_to(checkpoint, args.output_dir or Path("checkpoints") / checkpoint.uuid, quiet=args.quiet)


def _set_retention(args: argparse.Namespace) -> None:
    Experiments(session(args)).retain_trial_logs(args.trial_id, args.days)
    print(f"Logs of trial {args.trial_id} are kept {'for ever' if args.days < 0 else f'{args.days} days'}")


def _story(args: argparse.Namespace) -> None:
    events = connect(args).story(args.trial_id)
    if args.json or args.yaml or args.csv:
        headers = ["time", "subject", "event", "before", "after", "why", "decisions"]
        rows = [[getattr(event, name) for name in headers] for event in events]
        render.show(args, headers, rows, [dict(zip(headers, row, strict=True)) for row in rows])
        return
    for event in events:
        print(f"{render.time(event.time)}  {sentence(event)}")
        for decision in event.decisions:
            print(f"    -> {decision}")


# (subject, event) as the master stores them.
SENTENCES = {
    ("experiment", "Activate"): "The experiment was started or resumed",
    ("experiment", "Cancel"): "The experiment was cancelled: its trials save their work and end",
    ("experiment", "Continue"): "The experiment was continued after its end",
    ("experiment", "Delete"): "The experiment was deleted",
    ("experiment", "Fail"): "The experiment failed",
    ("experiment", "Kill"): "The experiment was killed",
    ("experiment", "Pause"): "The experiment was paused",
    ("experiment", "Revived"): "The experiment runs again",
    ("experiment", "SearchDone"): "The searcher needs no more trials",
    ("experiment", "TrialsLive"): "Trials of the experiment began or ended",
    ("search", "Create"): "The searcher created this trial",
    ("search", "Pause"): "The searcher paused this trial",
    ("search", "Resume"): "The searcher resumed this trial",
    ("search", "Stop"): "The searcher stopped this trial",
    ("search", "Warning"): "The searcher warns",
    ("search", "started"): "The search began",
    ("trial", "Activate"): "The trial was resumed",
    ("trial", "AllocationEnded"): "An attempt of the trial ended",
    ("trial", "Created"): "The trial was created",
    ("trial", "Hold"): "The trial waits for the search",
    ("trial", "Pause"): "The trial was paused",
    ("trial", "Release"): "The trial need not wait any more",
    ("trial", "Revived"): "The trial runs again",
    ("trial", "Stop"): "The trial was asked to stop",
}


def sentence(event: StoryEvent) -> str:
    """Return what happened, why, and the state that followed. An event that this client does not know is named as it
    is."""
    text = SENTENCES.get((event.subject, event.event))
    if text is None:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", event.event).lower()
        text = f"{event.subject.capitalize()}: {words}"
    if event.why:
        text += f": {event.why.rstrip('.')}"
    if event.after and event.after != event.before:
        text += f" (now {event.after})"
    return text
