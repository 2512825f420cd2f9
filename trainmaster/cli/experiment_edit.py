"""Verbs of `det experiment` that change an experiment after its start."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.config_file import add_override_option
from trainmaster.cli.following import follow_first_trial
from trainmaster.cli.session import UsageError, session
from trainmaster.cli.verbs import Verbs, add_days, confirmed, natural, positive
from trainmaster.client.code_archive import unpack
from trainmaster.client.errors import ClientError
from trainmaster.client.experiments import Experiments
from trainmaster.client.master import Master


def add_to(verbs: Verbs) -> None:
    p = verbs.add("archive", _archive, "hide an ended experiment from lists", "det experiment archive 1")
    _add_id(p)
    p = verbs.add("unarchive", _unarchive, "show an archived experiment again", "det experiment unarchive 1")
    _add_id(p)
    p = verbs.add("move", _move, "move it to another project", "det experiment move 1 vision cats")
    _add_id(p)
    p.add_argument("workspace_name", help="the project's workspace")
    p.add_argument("project_name", help="the project")
    p = verbs.add(
        "continue",
        _continue,
        "continue an ended experiment from its latest checkpoint",
        "det experiment continue 1 --config searcher.max_length.batches=2000 -f",
    )
    _add_id(p)
    p.add_argument("--config-file", type=Path, help="a YAML file with the keys to change")
    add_override_option(p)
    p.add_argument("-f", "--follow-first-trial", action="store_true", help="print the trial's log until it ends")
    p = verbs.add("download-model-def", _download_code, "copy its training code", "det experiment download-model-def 1")
    _add_id(p)
    p.add_argument("--output-dir", type=Path, default=Path(), help="where to (default: here)")
    p = verbs.add(
        "delete-tb-files", _delete_tensorboard, "delete its TensorBoard files", "det experiment delete-tb-files 1"
    )
    _add_id(p)
    _add_labels(verbs.group("label", "add and remove labels"))
    _add_settings(verbs.group("set", "change one setting"))


def _add_labels(verbs: Verbs) -> None:
    p = verbs.add("add", _add_label, "add a label", "det experiment label add 1 baseline")
    _add_id(p)
    p.add_argument("label")
    p = verbs.add("remove", _remove_label, "remove a label", "det experiment label remove 1 baseline")
    _add_id(p)
    p.add_argument("label")


def _add_settings(verbs: Verbs) -> None:
    p = verbs.add("name", _set("name", str), "give it another name", 'det experiment set name 1 "second try"')
    _add_id(p)
    p.add_argument("value", metavar="NAME")
    p = verbs.add("description", _set("description", str), "describe it", 'det experiment set description 1 "..."')
    _add_id(p)
    p.add_argument("value", metavar="TEXT")
    p = verbs.add(
        "max-slots", _set("max_slots", _limit), "limit the slots it holds at once", "det experiment set max-slots 1 8"
    )
    _add_id(p)
    p.add_argument("value", metavar="N", help="a number, or none for no limit")
    p = verbs.add("priority", _set("priority", int), "1 is served first, 99 last", "det experiment set priority 1 10")
    _add_id(p)
    p.add_argument("value", metavar="N")
    p = verbs.add("weight", _set("weight", float), "of its fair share", "det experiment set weight 1 2.5")
    _add_id(p)
    p.add_argument("value", metavar="X")
    p = verbs.add(
        "gc-policy",
        _set_gc_policy,
        "which checkpoints it keeps",
        "det experiment set gc-policy 1 --save-experiment-best 1 --save-trial-best 0 --save-trial-latest 1",
    )
    _add_id(p)
    p.add_argument("--save-experiment-best", type=natural, required=True, metavar="N", help="the best of all")
    p.add_argument("--save-trial-best", type=natural, required=True, metavar="N", help="the best of each trial")
    p.add_argument("--save-trial-latest", type=natural, required=True, metavar="N", help="the latest of each trial")
    p.add_argument("--yes", action="store_true", help="do not ask")
    p = verbs.add(
        "log-retention",
        _set_retention,
        "set how long its logs are kept",
        "det experiment set log-retention 1 --days 50",
    )
    _add_id(p)
    add_days(p)


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment_id", type=positive, help="the experiment's number")


def _archive(args: argparse.Namespace) -> None:
    Experiments(session(args)).archive(args.experiment_id)
    print(f"Archived experiment {args.experiment_id}")


def _unarchive(args: argparse.Namespace) -> None:
    Experiments(session(args)).unarchive(args.experiment_id)
    print(f"Unarchived experiment {args.experiment_id}")


def _move(args: argparse.Namespace) -> None:
    from trainmaster.client.organisation import Organisation

    http = session(args)
    project = Organisation(http).project(args.workspace_name, args.project_name)
    Experiments(http).move(args.experiment_id, project["id"])
    print(f"Moved experiment {args.experiment_id} to {args.workspace_name} / {args.project_name}")


def _continue(args: argparse.Namespace) -> int:
    from trainmaster.config.experiment import apply_overrides
    from trainmaster.config.messages import ConfigError

    try:
        text = args.config_file.read_text(encoding="utf-8") if args.config_file else "{}"
        text = apply_overrides(text, args.config) if args.config else text
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{args.config_file} cannot be read: {error}.") from None
    except ConfigError as error:
        raise ClientError(str(error)) from None
    http = session(args)
    Experiments(http).go_on(args.experiment_id, text)
    print(f"Continued experiment {args.experiment_id}", flush=True)
    if not args.follow_first_trial:
        return 0
    return follow_first_trial(Master(http), args.experiment_id)


def _download_code(args: argparse.Namespace) -> None:
    archive = Experiments(session(args)).files(args.experiment_id)
    target: Path = args.output_dir / f"experiment_{args.experiment_id}_model_def"
    try:
        target.mkdir(parents=True)
        if archive:
            unpack(archive, target)
    except FileExistsError:
        raise ClientError(f"{target} already exists; name another folder with --output-dir.") from None
    except OSError as error:
        raise ClientError(f"{target} cannot be written: {error.strerror}.") from None
    print(target)


def _delete_tensorboard(args: argparse.Namespace) -> None:
    Experiments(session(args)).remove_tensorboard_files(args.experiment_id)
    print(f"Deleted the TensorBoard files of experiment {args.experiment_id}")


def _add_label(args: argparse.Namespace) -> None:
    Experiments(session(args)).add_label(args.experiment_id, args.label)
    print(f"Added label '{args.label}' to experiment {args.experiment_id}")


def _remove_label(args: argparse.Namespace) -> None:
    Experiments(session(args)).remove_label(args.experiment_id, args.label)
    print(f"Removed label '{args.label}' from experiment {args.experiment_id}")


def _limit(text: str) -> int | None:
    return None if text.strip().lower() in ("none", "null") else int(text)


# Keys that are part of an experiment's resources, with the API's names
_RESOURCES = {"max_slots": "maxSlots", "priority": "priority", "weight": "weight"}


def _set(key: str, parse: Callable[[str], Any]) -> Callable[[argparse.Namespace], None]:
    def run(args: argparse.Namespace) -> None:
        try:
            value = parse(args.value)
        except ValueError:
            raise UsageError(f"{args.value!r} is not a number") from None
        change = {"resources": {_RESOURCES[key]: value}} if key in _RESOURCES else {key: value}
        Experiments(session(args)).edit(args.experiment_id, **change)
        print(f"Set {key.replace('_', ' ')} of experiment {args.experiment_id} to {args.value}")

    return run


def _set_gc_policy(args: argparse.Namespace) -> int:
    master = Experiments(session(args))
    policy = (args.save_experiment_best, args.save_trial_best, args.save_trial_latest)
    if not args.yes:
        preview = master.preview_gc(args.experiment_id, *policy)
        headers = ["Trial ID", "# of Batches", "State", f"Metric ({preview['metric_name']})", "UUID", "Size"]
        sizes = [sum((c["Resources"] or {}).values()) for c in preview["checkpoints"]]
        rows = [
            [
                c["TrialID"],
                c["StepsCompleted"],
                c["State"],
                (c["ValidationMetrics"] or {}).get(preview["metric_name"]),
                c["UUID"],
                render.Bytes(size),
            ]
            for c, size in zip(preview["checkpoints"], sizes, strict=True)
        ]
        if rows:
            freed = f"{len(rows)} checkpoints, {render.size(sum(sizes))}"
            print(f"This policy deletes these checkpoints:\n\n{render.table(headers, rows)}\n\n{freed}\n")
    if not confirmed(args, "Checkpoints that the policy does not keep are deleted. Set it?"):
        print("The policy was not changed.")
        return 1
    names = ("saveExperimentBest", "saveTrialBest", "saveTrialLatest")
    master.edit(args.experiment_id, checkpointStorage=dict(zip(names, policy, strict=True)))
    print(f"Set GC policy of experiment {args.experiment_id}")
    return 0


def _set_retention(args: argparse.Namespace) -> None:
    Experiments(session(args)).retain_logs(args.experiment_id, args.days)
    period = "for ever" if args.days < 0 else f"{args.days} days"
    print(f"Logs of experiment {args.experiment_id} are kept {period}")
