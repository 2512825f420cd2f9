"""`det model version`: register what a trial found best, name versions, download, export and trace them."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from trainmaster.cli import render
from trainmaster.cli.checkpoint import copy_to
from trainmaster.cli.session import UsageError, connect, session
from trainmaster.cli.verbs import Verbs, positive
from trainmaster.client.artifacts import ModelVersion
from trainmaster.client.checkpoint_files import Way
from trainmaster.client.master import Master
from trainmaster.client.model_registry import ModelRegistry


def add_to(verbs: Verbs) -> None:
    verbs = verbs.group("version", "versions of a model: register, name, download, export and trace them")
    p = verbs.add(
        "register",
        _register,
        "register a checkpoint, or the best one of a trial or an experiment, as the next version",
        "det model version register cats --trial 12 --alias production",
    )
    _add_model(p)
    p.add_argument("uuid", nargs="?", help="the checkpoint")
    p.add_argument("--trial", type=positive, metavar="ID", help="the best checkpoint of this trial")
    p.add_argument("--experiment", type=positive, metavar="ID", help="the best checkpoint of this experiment")
    p.add_argument("--alias", metavar="NAME", help="a name that leads to the new version from now on")
    p.add_argument("--comment", metavar="TEXT", help="what is new in it")
    p.add_argument("--json", action="store_true", help="print the version as JSON")
    p = verbs.add("alias", _alias, "let a name lead to a version", "det model version alias cats 3 production")
    _add_version(p)
    p.add_argument("alias", metavar="NAME", help="such as production")
    p = verbs.add("unalias", _unalias, "remove a name", "det model version unalias cats production")
    _add_model(p)
    p.add_argument("alias", metavar="NAME", help="the name")
    p = verbs.add("aliases", _aliases, "list the names", "det model version aliases cats")
    _add_model(p)
    render.add_format_options(p)
    p = verbs.add("download", _download, "copy its files", "det model version download cats production -o cats")
    _add_version(p)
    _add_target(p, "checkpoints/UUID")
    p.add_argument("-q", "--quiet", action="store_true", help="print only the folder")
    p = verbs.add(
        "export",
        _export,
        "copy its files, code, configuration and origin to a folder with a README, which needs no master",
        "det model version export cats production -o cats-3",
    )
    _add_version(p)
    _add_target(p, "MODEL-VERSION")
    p = verbs.add("lineage", _lineage, "show where it comes from", "det model version lineage cats 3 --json")
    _add_version(p)
    p.add_argument("--json", action="store_true", help="print all of it as JSON")


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the model's name or number")


def _add_version(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("which", metavar="VERSION", help="a number, an alias, or latest")


def _add_target(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("-o", "--output-dir", type=Path, help=f"where to (default: {default})")
    parser.add_argument(
        "--mode", choices=[way.value for way in Way], default=Way.AUTO.value, help="as of `det checkpoint download`"
    )


def _register(args: argparse.Namespace) -> None:
    if sum(one is not None for one in (args.uuid, args.trial, args.experiment)) != 1:
        raise UsageError("name one of them: a checkpoint, --trial or --experiment")
    master = connect(args)
    if args.trial is not None:
        uuid = master.trial(args.trial).best_checkpoint().uuid
    elif args.experiment is not None:
        uuid = master.experiment(args.experiment).best_checkpoint().uuid
    else:
        uuid = args.uuid
    made = master.registry.register(args.name, uuid, comment=args.comment)
    if args.alias is not None:
        master.registry.set_alias(args.name, args.alias, made["version"])
    if args.json:
        render.show_json(made)
    else:
        named = f", {args.alias} from now on" if args.alias is not None else ""
        print(f"Registered checkpoint {uuid} as version {made['version']} of {made['model']['name']}{named}")


def _alias(args: argparse.Namespace) -> None:
    registry = ModelRegistry(session(args))
    number = registry.number(args.name, args.which)
    registry.set_alias(args.name, args.alias, number)
    print(f"{args.alias} leads to version {number} of {args.name}")


def _unalias(args: argparse.Namespace) -> None:
    ModelRegistry(session(args)).remove_alias(args.name, args.alias)
    print(f"Removed the alias {args.alias} of {args.name}")


def _aliases(args: argparse.Namespace) -> None:
    aliases = ModelRegistry(session(args)).aliases(args.name)
    render.show(args, ["Alias", "Version #"], [[alias, number] for alias, number in aliases.items()], aliases)


def _version(master: Master, args: argparse.Namespace) -> ModelVersion:
    return master.model(args.name).version(args.which)


def _download(args: argparse.Namespace) -> None:
    checkpoint = _version(connect(args), args).checkpoint()
    target = args.output_dir or Path("checkpoints") / checkpoint.uuid
    copy_to(checkpoint, target, quiet=args.quiet, way=Way(args.mode))


def _export(args: argparse.Namespace) -> None:
    version = _version(connect(args), args)
    default = f"{version.model_name}-{version.version}".replace("/", "-")
    print(version.export(args.output_dir or Path(default), Way(args.mode)))


def _lineage(args: argparse.Namespace) -> None:
    version = _version(connect(args), args)
    origin = version.lineage()
    if args.json:
        render.show_json(asdict(origin))
        return
    from trainmaster.client.model_export import facts

    aliases = version.aliases()
    rows = [("model", f"{version.model_name}, version {version.version}"), *facts(aliases, origin)]
    width = max(len(name) for name, _ in rows) + 2
    print("\n".join(f"{name + ':':<{width}}{value}" for name, value in rows))
