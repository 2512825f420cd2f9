"""`det experiment`: create, list and show experiments, wait for them, and control them."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainmaster.cli import experiment_edit, render
from trainmaster.cli.config_file import ConfigFile, add_override_option
from trainmaster.cli.following import follow_first_trial, print_logs
from trainmaster.cli.session import UsageError, connect, say, session
from trainmaster.cli.verbs import Verbs, add_log_filters, add_paging, confirmed, positive, seconds
from trainmaster.client.errors import APIError, ClientError
from trainmaster.client.experiment import Experiment, Trial
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport
from trainmaster.client.views import Views

# verb -> (its call, the message when it is done, help, aliases)
STATE_VERBS: dict[str, tuple[Callable[[Master, int], None], str, str, tuple[str, ...]]] = {
    "pause": (Master.pause, "Paused", "pause: trials save their work and release their resources", ()),
    "activate": (Master.activate, "Activated", "continue a paused experiment", ("unpause",)),
    "cancel": (Master.cancel, "Canceled", "stop gracefully: trials save their work first", ()),
    "kill": (Master.kill, "Killed", "stop at once", ()),
}
ENDING = ("cancel", "kill")
FOUND_COLUMNS = ("name", "state", "progress", "trials", "metric", "best", "user", "started", "duration", "labels")


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("create", _create, "create an experiment", "det experiment create search.yaml . -f")
    p.add_argument("config_file", type=Path, help="the experiment's YAML file")
    p.add_argument("model_def", type=Path, nargs="?", help="folder or file with the training code")
    p.add_argument("-i", "--include", type=Path, action="append", default=[], help="a further file or folder to send")
    add_override_option(p)
    p.add_argument("--template", metavar="NAME", help="a template for keys that the file does not set")
    p.add_argument("--project_id", type=positive, help="the project it belongs to")
    p.add_argument("--paused", action="store_true", help="do not start it yet")
    p.add_argument("-f", "--follow-first-trial", action="store_true", help="print the first trial's log until it ends")
    p.add_argument("--json", action="store_true", help="print the new experiment as JSON")
    p = verbs.add("list", _list, "list experiments", "det experiment list --json", ["ls"])
    p.add_argument("-a", "--all", action="store_true", help="those of all users, archived ones too")
    p.add_argument("--show_project", action="store_true", help="with workspace and project")
    add_paging(p, 200)
    render.add_format_options(p)
    p = verbs.add(
        "find",
        _find,
        "list the experiments of all users that fit a filter, as the web page does",
        "det experiment find --sort=-started 'state:completed val_loss<0.3 user:me'",
    )
    p.add_argument("filter", nargs="*", metavar="TERM", help="such as state:running, label:vit, hp.lr>1e-4, started<7d")
    p.add_argument("--sort", default="", metavar="COLUMNS", help="comma-separated; prefix with - to sort descending")
    p.add_argument("--columns", default="", metavar="COLUMNS", help="with commas; also metrics, and hp.NAME")
    p.add_argument("--limit", type=positive, metavar="N", help="at most so many (default: all)")
    render.add_format_options(p)
    p = verbs.add("describe", _describe, "show experiments with their trials", "det experiment describe 1,2 --metrics")
    p.add_argument("experiment_ids", help="ids, separated by commas")
    p.add_argument("--metrics", action="store_true", help="with the trials' metrics and checkpoints")
    p.add_argument("--outdir", type=Path, help="write CSV files there instead of printing tables")
    render.add_format_options(p)
    p = verbs.add("logs", _logs, "print the first trial's log", "det experiment logs -f 1")
    _add_id(p)
    add_log_filters(p)
    p = verbs.add(
        "wait",
        _wait,
        "wait until it has ended, through absences of the master (DET_PATIENCE seconds); status 0 if it completed",
        "det experiment wait 1",
    )
    _add_id(p)
    p.add_argument("--polling-interval", type=seconds, default=1.0, metavar="SECONDS", help="default: %(default)s")
    for verb, (_, _, text, aliases) in STATE_VERBS.items():
        _add_id(verbs.add(verb, _change_state(verb), text, f"det experiment {verb} 1", aliases))
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
    p.add_argument("--best", type=positive, metavar="N", help="only the N best by the searcher's metric")
    render.add_format_options(p)
    p = verbs.add("config", _config, "print its full configuration as YAML", "det experiment config 1")
    _add_id(p)
    p.add_argument("--json", action="store_true", help="print JSON")
    p = verbs.add("git", _git, "show the commit that its code is of", "det experiment git 1 --diff | git apply")
    _add_id(p)
    p.add_argument("--diff", action="store_true", help="print only what was not committed, for `git apply`")
    render.add_format_options(p)
    p = verbs.add("download", _download, "copy its best checkpoints", "det experiment download 1 --top-n 3 -o best")
    _add_id(p)
    p.add_argument("-o", "--output-dir", type=Path, default=Path("checkpoints"), help="default: %(default)s")
    p.add_argument("--top-n", type=positive, default=1, metavar="N", help="how many (default: %(default)s)")
    p.add_argument("-q", "--quiet", action="store_true", help="print only the folders")
    experiment_edit.add_to(verbs)


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment_id", type=positive, help="the experiment's number")


def _create(args: argparse.Namespace) -> int:
    from trainmaster.client import context

    if args.follow_first_trial and args.paused:
        raise UsageError("--follow-first-trial and --paused exclude each other: a paused experiment has no first trial")
    file = ConfigFile.of(args)
    text = file.to_send()
    master = connect(args)
    files = context.collect(args.model_def, args.include, lambda: int(master.info()["maxContextBytes"]))
    if not args.json:
        size = render.size(files.size)
        print(f"Preparing files to send to master... {size} and {len(files)} files", flush=True)
    try:
        made = master.create_experiment(
            text,
            files,
            activate=not args.paused,
            project_id=args.project_id,
            template=args.template,
            source=str(args.config_file),
            notice=say,
        )
    except APIError as error:
        raise file.placed(error) from None
    if args.json:
        render.show_json(made.raw)
    else:
        print(f"Created experiment {made.id}", flush=True)
    return follow_first_trial(master, made.id) if args.follow_first_trial else 0


def _list(args: argparse.Namespace) -> None:
    _show_list(args, connect(args), projects=args.show_project)


def _find(args: argparse.Namespace) -> None:
    columns = [name.strip() for name in args.columns.split(",") if name.strip()]
    experiments = connect(args).find(
        " ".join(args.filter), sort=args.sort, columns=columns or FOUND_COLUMNS, limit=args.limit
    )
    headers = list(dict.fromkeys(["id", *(columns or FOUND_COLUMNS)]))
    times = {name for name in headers if name in ("started", "ended")}
    rows = [[_moment(row[name]) if name in times else row[name] for name in headers] for row in experiments]
    render.show(args, headers, rows, [{name: row[name] for name in headers} for row in experiments])


def _moment(seconds: float | None) -> render.Moment:
    if seconds is None:
        return render.Moment("")
    return render.Moment(dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="milliseconds"))


def list_in_project(args: argparse.Namespace, http: Transport, project_id: int) -> None:
    """For `det project list-experiments`."""
    _show_list(args, Master(http), project_id=project_id)


def _show_list(
    args: argparse.Namespace, master: Master, *, project_id: int | None = None, projects: bool = False
) -> None:
    experiments = master.experiments(
        users=[] if args.all else [str(master.whoami()["username"])],
        archived=None if args.all else False,
        project_id=project_id,
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
            render.Percent(e.progress),
            render.Moment(e.started),
            render.Moment(e.ended or ""),
            e.resource_pool,
        ]
        for e in experiments
    ]
    if projects:
        headers = ["Workspace", "Project", *headers]
        rows = [[e.workspace, e.project, *row] for e, row in zip(experiments, rows, strict=True)]
    if args.all:
        headers.append("Archived")
        rows = [[*row, e.archived] for e, row in zip(experiments, rows, strict=True)]
    render.show(args, headers, rows, [e.raw for e in experiments])


def _describe(args: argparse.Namespace) -> None:
    try:
        ids = [positive(part.strip()) for part in args.experiment_ids.split(",")]
    except argparse.ArgumentTypeError:
        raise UsageError(f"{args.experiment_ids!r} is not a list of experiment ids such as 1,2") from None
    master = connect(args)
    experiments = [master.experiment(i) for i in ids]
    trials = {e.id: master.trials(e.id) for e in experiments}
    if args.json or args.yaml:
        raw = [{"experiment": e.raw, "trials": [t.raw for t in trials[e.id]]} for e in experiments]
        render.show(args, (), (), raw)
        return
    everyone = [t for e in experiments for t in trials[e.id]]
    tables = {"experiments": _experiment_table(experiments), "trials": _trial_table(everyone)}
    if args.metrics:
        tables["workloads"] = _workload_table(master, everyone)
    if args.outdir:
        _save(args.outdir, tables)
        return
    for number, (headers, rows) in enumerate(tables.values()):
        if number:
            print()
        render.show(args, headers, rows, None)


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
            render.Percent(e.progress),
            render.Moment(e.started),
            render.Moment(e.ended or ""),
            e.name,
            e.description,
            e.archived,
            e.resource_pool,
            e.labels,
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
            render.Moment(t.started),
            render.Moment(t.ended or ""),
            t.hparams,
            t.batches,
            t.best_metric,
        ]
        for t in trials
    ]
    return headers, rows


def _workload_table(master: Master, trials: list[Trial]) -> tuple[list[str], list[list[Any]]]:
    from trainmaster.cli import workloads

    loads = ((trial.id, load) for trial in trials for load in master.workloads(trial.id))
    return workloads.table(loads, training=True, trials=True)


def _save(folder: Path, tables: dict[str, tuple[list[str], list[list[Any]]]]) -> None:
    for name, (headers, rows) in tables.items():
        path = folder / f"{name}.csv"
        try:
            render.save_csv(path, headers, rows)
        except OSError as error:
            raise ClientError(f"{path} cannot be written: {error.strerror}.") from None
        print(f"wrote {path}")


def _logs(args: argparse.Namespace) -> None:
    master = connect(args)
    trials = master.trials(args.experiment_id, limit=1, everything=False)
    if not trials:
        raise ClientError(f"Experiment {args.experiment_id} has no trial yet.")
    print_logs(master, trials[0].id, args)


def _wait(args: argparse.Namespace) -> int:
    from trainmaster.cli.progress import watch

    ended = watch(lambda: connect(args), args.experiment_id, args.polling_interval)
    if ended.state != "COMPLETED":
        why = f": {ended.reason}" if ended.reason else ""
        raise ClientError(f"Experiment {ended.id} ended as {ended.state}{why}.")
    return 0


def _change_state(verb: str) -> Callable[[argparse.Namespace], None]:
    call, done, *_ = STATE_VERBS[verb]

    def run(args: argparse.Namespace) -> None:
        master = connect(args)
        if verb in ENDING:
            experiment = master.experiment(args.experiment_id)
            if experiment.ended_for_good:
                print(f"Experiment {experiment.id} has already ended: {experiment.state}.")
                return
        call(master, args.experiment_id)
        print(f"{done} experiment {args.experiment_id}")

    return run


def _delete(args: argparse.Namespace) -> int:
    if not confirmed(args, f"Delete experiment {args.experiment_id} with all its checkpoints, metrics and logs?"):
        print("Nothing was deleted.")
        return 1
    connect(args).delete_experiment(args.experiment_id)
    print(f"Deletion of experiment {args.experiment_id} is in progress")
    return 0


def _list_trials(args: argparse.Namespace) -> None:
    trials = connect(args).trials(
        args.experiment_id, limit=args.limit, offset=args.offset, everything=args.pages == "all"
    )
    headers = ["Trial ID", "State", "H-Params", "Started", "Ended", "# of Batches", "Best Metric", "Restarts"]
    rows = [
        [
            t.id,
            t.state,
            t.hparams,
            render.Moment(t.started),
            render.Moment(t.ended or ""),
            t.batches,
            t.best_metric,
            t.restarts,
        ]
        for t in trials
    ]
    render.show(args, headers, rows, [t.raw for t in trials])


def _list_checkpoints(args: argparse.Namespace) -> None:
    checkpoints = connect(args).checkpoints(args.experiment_id, best=args.best)
    headers = ["Trial ID", "# of Batches", "State", "Validation Metric", "UUID", "Resources", "Size"]
    rows = [
        [
            c.trial_id,
            c.steps_completed,
            c.state,
            c.metric,
            c.uuid,
            sorted(c.resources),
            render.Bytes(c.size),
        ]
        for c in checkpoints
    ]
    render.show(args, headers, rows, [c.raw for c in checkpoints])


def _config(args: argparse.Namespace) -> None:
    config = connect(args).experiment(args.experiment_id).raw["config"]
    if args.json:
        render.show_json(config)
    else:
        print(render.yaml(config), end="")


def _download(args: argparse.Namespace) -> None:
    from trainmaster.cli.checkpoint import copy_to

    checkpoints = connect(args).checkpoints(args.experiment_id, best=args.top_n)
    if not checkpoints:
        raise ClientError(f"Experiment {args.experiment_id} has no checkpoint.")
    for checkpoint in checkpoints:
        copy_to(checkpoint, args.output_dir / checkpoint.uuid, quiet=args.quiet)


def _git(args: argparse.Namespace) -> int:
    state = Views(session(args)).git(args.experiment_id)
    if state is None:
        say(f"Experiment {args.experiment_id} names no commit: its code came from no git repository.")
        return 1
    if args.diff:
        print(state.diff, end="")
        if state.diff_cut:
            say("The diff is not whole: only its first 256 KiB were kept.")
        return 0
    if args.json or args.yaml or args.csv:
        render.show(args, list(asdict(state)), [list(asdict(state).values())], asdict(state))
        return 0
    changed = f"{state.changed_lines} lines" + (" at least" if state.diff_cut else "") if state.diff else "nothing"
    rows = [
        ["commit", state.commit],
        ["by", f"{state.committer}, {state.committed}"],
        ["branch", state.branch or "none (detached)"],
        ["remote", state.remote or "none"],
        ["changed since", changed + (f"; {state.untracked} files in no commit" if state.untracked else "")],
    ]
    print("\n".join(f"{name + ':':<15}{value}" for name, value in rows))
    return 0
