"""`det experiment`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.session import UsageError, connect
from trainmaster.cli.verbs import Verbs, add_log_filters, add_paging, log_filters
from trainmaster.client.errors import APIError, ClientError
from trainmaster.client.master import Master
from trainmaster.client.models import Experiment, Trial

STEER = {
    "pause": ("Paused", "pause: trials save their work and release their resources", ()),
    "activate": ("Activated", "go on with a paused experiment", ("unpause",)),
    "cancel": ("Canceled", "stop gracefully: trials save their work first", ()),
    "kill": ("Killed", "stop at once", ()),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("create", _create, "create an experiment", "det experiment create search.yaml . -f")
    p.add_argument("config_file", type=Path, help="the experiment's YAML file")
    p.add_argument("model_def", type=Path, nargs="?", help="folder or file with the training code")
    p.add_argument("-i", "--include", type=Path, action="append", default=[], help="a further file or folder to send")
    p.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key, e.g. searcher.max_trials=8",
    )
    p.add_argument("--project_id", type=int, help="the project it belongs to")
    p.add_argument("--paused", action="store_true", help="do not start it yet")
    p.add_argument("-f", "--follow-first-trial", action="store_true", help="print the first trial's log until it ends")
    p.add_argument("--json", action="store_true", help="print the new experiment as JSON")
    p = verbs.add("list", _list, "list experiments", "det experiment list --json", ["ls"])
    p.add_argument("-a", "--all", action="store_true", help="everybody's, archived ones too")
    p.add_argument("--show_project", action="store_true", help="with workspace and project")
    add_paging(p, 200)
    render.add_format_options(p)
    p = verbs.add("describe", _describe, "show experiments with their trials", "det experiment describe 1,2 --metrics")
    p.add_argument("experiment_ids", help="ids, separated by commas")
    p.add_argument("--metrics", action="store_true", help="with the trials' metrics")
    p.add_argument("--outdir", type=Path, help="write CSV files there")
    render.add_format_options(p)
    p = verbs.add("logs", _logs, "print the first trial's log", "det experiment logs -f 1")
    _add_id(p)
    add_log_filters(p)
    p = verbs.add("wait", _wait, "wait until it has ended; exit status 0 if it completed", "det experiment wait 1")
    _add_id(p)
    p.add_argument("--polling-interval", type=float, default=1.0, metavar="SECONDS", help="default: %(default)s")
    for verb, (_, text, aliases) in STEER.items():
        _add_id(verbs.add(verb, _steer(verb), text, f"det experiment {verb} 1", aliases))
    p = verbs.add("delete", _delete, "delete an experiment with its checkpoints", "det experiment delete 1 --yes")
    _add_id(p)
    p.add_argument("--yes", action="store_true", help="do not ask")
    p = verbs.add("list-trials", _list_trials, "list its trials", "det experiment list-trials 1", ["lt"])
    _add_id(p)
    add_paging(p, 200)
    render.add_format_options(p)
    p = verbs.add(
        "list-checkpoints",
        _list_checkpoints,
        "list its checkpoints",
        "det experiment list-checkpoints 1 --best 3",
        ["lc"],
    )
    _add_id(p)
    p.add_argument("--best", type=int, metavar="N", help="only the N best by the searcher's metric")
    render.add_format_options(p)
    p = verbs.add("config", _config, "print its full configuration as YAML", "det experiment config 1")
    _add_id(p)


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment_id", type=int, help="the experiment's number")


def _create(args: argparse.Namespace) -> int:
    from trainmaster.client import context

    text = read_config(args.config_file)
    if args.config:
        text = override(text, args.config)
    files = context.collect(args.model_def, args.include) if args.model_def or args.include else []
    master = connect(args)
    if not args.json:
        total = sum(len(f["content"]) * 3 // 4 for f in files)
        print(f"Preparing files to send to master... {render.size(total)} and {len(files)} files")
    try:
        made = master.create_experiment(
            text, files, activate=not args.paused, project_id=args.project_id, source=str(args.config_file)
        )
    except APIError as error:
        if error.status == 400 and args.config:
            raise ClientError(f"{error}\n(The line numbers are those after --config was applied.)") from None
        raise
    if args.json:
        render.show_json(made.raw)
    else:
        print(f"Created experiment {made.id}")
    return _follow_first_trial(master, made.id) if args.follow_first_trial else 0


def _follow_first_trial(master: Master, experiment_id: int) -> int:
    import time

    print("Waiting for first trial to begin...", file=sys.stderr)
    while not (trials := master.trials(experiment_id, limit=1, everything=False)):
        if master.experiment(experiment_id).ended_for_good:
            raise ClientError(f"Experiment {experiment_id} ended without a trial.")
        time.sleep(0.5)
    trial = trials[0]
    print(f"Following first trial with ID {trial.id}", file=sys.stderr)
    for line in master.logs(trial.id, follow=True):
        print(line.message, end="", flush=True)
    print(f"Trial log stream ended. To reopen log stream, run: det trial logs -f {trial.id}", file=sys.stderr)
    return 0


def read_config(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ClientError(f"{path} is not UTF-8 text.") from None


def override(text: str, overrides: list[str]) -> str:
    from trainmaster.config.experiment import apply_overrides
    from trainmaster.config.messages import ConfigError

    try:
        return apply_overrides(text, overrides)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _list(args: argparse.Namespace) -> None:
    master = connect(args)
    users = [] if args.all else [str(master.whoami()["username"])]
    found = master.experiments(
        users=users,
        archived=None if args.all else False,
        limit=args.limit,
        offset=args.offset,
        everything=args.pages == "all",
    )
    headers = ["ID", "Owner", "Name", "Parent ID", "State", "Progress", "Started", "Ended", "Resource Pool"]
    rows: list[list[Any]] = [
        [
            e.id,
            e.owner,
            e.name,
            e.parent_id,
            e.state,
            render.percent(e.progress),
            render.time(e.started),
            render.time(e.ended),
            e.resource_pool,
        ]
        for e in found
    ]
    if args.show_project:
        headers = ["Workspace", "Project", *headers]
        rows = [[e.workspace, e.project, *row] for e, row in zip(found, rows, strict=True)]
    if args.all:
        headers.append("Archived")
        rows = [[*row, e.archived] for e, row in zip(found, rows, strict=True)]
    render.show(args, headers, rows, [e.raw for e in found])


def _describe(args: argparse.Namespace) -> None:
    try:
        ids = [int(part) for part in args.experiment_ids.split(",")]
    except ValueError:
        raise UsageError(f"{args.experiment_ids!r} is not a list of experiment ids such as 1,2") from None
    master = connect(args)
    experiments = [master.experiment(i) for i in ids]
    trials = {e.id: master.trials(e.id) for e in experiments}
    if args.json:
        render.show_json([{"experiment": e.raw, "trials": [t.raw for t in trials[e.id]]} for e in experiments])
        return
    tables = {
        "experiments": _experiment_table(experiments),
        "trials": _trial_table([t for e in experiments for t in trials[e.id]]),
    }
    if args.metrics:
        tables["workloads"] = _workload_table(master, [t for e in experiments for t in trials[e.id]])
    for name, (headers, rows) in tables.items():
        if args.outdir:
            _write_csv(args.outdir / f"{name}.csv", headers, rows)
        else:
            render.show(args, headers, rows, None)
            print()


def _experiment_table(experiments: list[Experiment]) -> tuple[list[str], list[list[Any]]]:
    headers = [
        "Experiment ID",
        "State",
        "Progress",
        "Started",
        "Ended",
        "Name",
        "Description",
        "Archived",
        "Resource Pool",
        "Labels",
    ]
    rows: list[list[Any]] = [
        [
            e.id,
            e.state,
            render.percent(e.progress),
            render.time(e.started),
            render.time(e.ended),
            e.name,
            e.description,
            e.archived,
            e.resource_pool,
            ", ".join(e.labels),
        ]
        for e in experiments
    ]
    return headers, rows


def _trial_table(trials: list[Trial]) -> tuple[list[str], list[list[Any]]]:
    headers = [
        "Trial ID",
        "Experiment ID",
        "State",
        "Started",
        "Ended",
        "H-Params",
        "# of Batches",
        "Best Metric",
    ]
    rows: list[list[Any]] = [
        [
            t.id,
            t.experiment_id,
            t.state,
            render.time(t.started),
            render.time(t.ended),
            render.hparams(t.hparams),
            t.batches,
            t.best_metric,
        ]
        for t in trials
    ]
    return headers, rows


def _workload_table(master: Master, trials: list[Trial]) -> tuple[list[str], list[list[Any]]]:
    rows: list[list[Any]] = []
    for trial in trials:
        for load in master.workloads(trial.id):
            (kind, content), *_ = load.items()
            shown = content.get("metrics", {}).get("avgMetrics") or content.get("uuid") or ""
            rows.append([trial.id, content["totalBatches"], kind, render.time(content.get("endTime")), shown])
    return ["Trial ID", "# of Batches", "Kind", "Report Time", "Metrics or Checkpoint"], rows


def _write_csv(path: Path, headers: list[str], rows: list[list[Any]]) -> None:
    import csv

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(headers)
        writer.writerows([render.plain(cell) for cell in row] for row in rows)
    print(f"wrote {path}")


def _logs(args: argparse.Namespace) -> None:
    from trainmaster.cli.trial import print_logs

    master = connect(args)
    trials = master.trials(args.experiment_id, limit=1, everything=False)
    if not trials:
        raise ClientError(f"Experiment {args.experiment_id} has no trial yet.")
    print_logs(master, trials[0].id, args, log_filters(args))


def _wait(args: argparse.Namespace) -> int:
    from trainmaster.cli.progress import watch

    ended = watch(connect(args), args.experiment_id, args.polling_interval)
    if ended.state != "COMPLETED":
        why = f": {ended.reason}" if ended.reason else ""
        print(f"Experiment {ended.id} ended as {ended.state}{why}.", file=sys.stderr)
        return 1
    return 0


def _steer(verb: str) -> Any:
    def run(args: argparse.Namespace) -> None:
        connect(args).steer(args.experiment_id, verb)
        print(f"{STEER[verb][0]} experiment {args.experiment_id}")

    return run


def _delete(args: argparse.Namespace) -> int:
    if not args.yes:
        if not sys.stdin.isatty():
            raise UsageError("deleting asks for confirmation; add --yes when nobody can answer")
        question = f"Delete experiment {args.experiment_id} with all its checkpoints, metrics and logs? [y/N] "
        if input(question).strip().lower() not in ("y", "yes"):
            print("Nothing was deleted.")
            return 1
    connect(args).delete_experiment(args.experiment_id)
    print(f"Deletion of experiment {args.experiment_id} is in progress")
    return 0


def _list_trials(args: argparse.Namespace) -> None:
    found = connect(args).trials(
        args.experiment_id, limit=args.limit, offset=args.offset, everything=args.pages == "all"
    )
    headers = ["Trial ID", "State", "H-Params", "Started", "Ended", "# of Batches", "Best Metric", "Restarts"]
    rows = [
        [
            t.id,
            t.state,
            render.hparams(t.hparams),
            render.time(t.started),
            render.time(t.ended),
            t.batches,
            t.best_metric,
            t.restarts,
        ]
        for t in found
    ]
    render.show(args, headers, rows, [t.raw for t in found])


def _list_checkpoints(args: argparse.Namespace) -> None:
    found = connect(args).checkpoints(args.experiment_id, best=args.best)
    headers = ["Trial ID", "# of Batches", "State", "Validation Metric", "UUID", "Resources", "Size"]
    rows = [
        [
            c.trial_id,
            c.steps_completed,
            c.state,
            c.metric,
            c.uuid,
            ", ".join(sorted(c.resources)),
            render.size(c.size),
        ]
        for c in found
    ]
    render.show(args, headers, rows, [c.raw for c in found])


def _config(args: argparse.Namespace) -> None:
    config = connect(args).experiment(args.experiment_id).raw["config"]
    try:
        import yaml
    except ImportError:  # JSON is YAML
        print(json.dumps(config, indent=2))
    else:
        print(yaml.safe_dump(config, sort_keys=False), end="")
