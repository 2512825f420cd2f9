"""`det preview-search`."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.cli import render
from trainmaster.cli.experiment import read_config
from trainmaster.cli.session import UsageError, connect


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: det preview-search search.yaml"
    parser.add_argument("config_file", type=Path, help="the experiment's YAML file")
    render.add_format_options(parser)
    parser.set_defaults(run=_preview)


def _preview(args: argparse.Namespace) -> None:
    import yaml

    try:
        config = yaml.safe_load(read_config(args.config_file))
    except yaml.YAMLError as error:
        raise UsageError(f"{args.config_file} is not valid YAML: {error}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{args.config_file} must hold a mapping such as `searcher: ...`")
    summary = connect(args).preview_search(config)
    rows = []
    for entry in summary["trials"]:
        unit = entry["unit"]
        length = "train to completion" if unit.get("maxLength") else f"train for {unit['value']} {unit['name']}"
        rows.append([entry["count"], length])
    if not (args.json or args.csv):
        print(yaml.safe_dump(summary["config"], sort_keys=False))
    render.show(args, ["Trials", "Training Time"], rows, summary)
