"""`det preview-search`: simulates the search of a configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.cli import render
from trainmaster.cli.config_file import ConfigFile, add_override_option
from trainmaster.cli.session import connect
from trainmaster.client.errors import APIError


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: det preview-search search.yaml"
    parser.add_argument("config_file", type=Path, help="the experiment's YAML file")
    add_override_option(parser)
    render.add_format_options(parser)
    parser.set_defaults(run=_preview)


def _preview(args: argparse.Namespace) -> None:
    file = ConfigFile.of(args)
    try:
        summary = connect(args).preview_search(file.data())
    except APIError as error:
        raise file.placed(error) from None
    rows = []
    for entry in summary["trials"]:
        unit = entry["unit"]
        length = "train to completion" if unit.get("maxLength") else f"train for {unit['value']} {unit['name']}"
        rows.append([entry["count"], length])
    if not (args.json or args.yaml or args.csv):
        print(render.yaml(summary["config"]))
    render.show(args, ["Trials", "Training Time"], rows, summary)
