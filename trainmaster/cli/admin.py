"""`trainmaster`: running and looking after a master."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.cli import admin_helper, admin_image, admin_report, admin_tls, agent_daemon
from trainmaster.cli.terminal import protect

if TYPE_CHECKING:
    from trainmaster.config.master import MasterConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, 1 for a failure told in one sentence, 2 for a command that is written wrongly."""
    parser = _parser()
    args = parser.parse_args(argv)
    if getattr(args, "run", None) is None:
        (getattr(args, "parser", None) or parser).print_help()
        return 2
    protect()
    try:
        return int(args.run(args) or 0)
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    from trainmaster.version import VERSION

    parser = argparse.ArgumentParser(prog="trainmaster", description="Run and look after a training master.")
    parser.add_argument("-V", "--version", action="version", version=f"trainmaster {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    p = commands.add_parser(
        "serve",
        help="run the master",
        description="Run the master until it is interrupted.",
        epilog="Example: trainmaster serve --config master.yaml --data /srv/trainmaster",
    )
    _add_place(p)
    p.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    p.add_argument("--port", type=int, help="port to listen on; 0 takes a free one (default: 8080, with TLS 8443)")
    p.set_defaults(run=_serve, parser=p)
    p = commands.add_parser(
        "agent",
        help="let this host work for a master",
        description="Run jobs of a master in containers of this host, until it is interrupted.",
        epilog="Example: trainmaster agent --master http://login1:8080 --token-file /etc/trainmaster/agent-token",
    )
    agent_daemon.add_to(p)
    p = commands.add_parser("helper", help="jobs that run as the people who ask for them")
    p.set_defaults(parser=p)
    admin_helper.add_to(p, _config)
    p = commands.add_parser("image", help="the site's folder of container images")
    p.set_defaults(parser=p)
    admin_image.add_to(p, _config)
    p = commands.add_parser("report", help="what the site's searches have saved")
    p.set_defaults(parser=p)
    admin_report.add_to(p, _add_place, _report_savings)
    p = commands.add_parser("tls", help="the master's certificate")
    p.set_defaults(parser=p)
    admin_tls.add_to(p)
    p = commands.add_parser("config", help="the configuration file")
    p.set_defaults(parser=p)
    verbs = p.add_subparsers(title="verbs", metavar="VERB")
    p = verbs.add_parser(
        "check",
        help="say what is wrong with a configuration file, with line and mend",
        description="Read a configuration as `serve` and SIGHUP would. Asks no cluster and changes nothing.",
        epilog="Example: trainmaster config check master.yaml",
    )
    p.add_argument("config", type=Path, metavar="FILE", help="the master's configuration")
    p.set_defaults(run=_config_check, parser=p)
    p = commands.add_parser("db", help="the database")
    p.set_defaults(parser=p)
    verbs = p.add_subparsers(title="verbs", metavar="VERB")
    p = verbs.add_parser(
        "upgrade", help="bring the database to this version's schema", epilog="Example: trainmaster db upgrade"
    )
    _add_place(p)
    p.set_defaults(run=_db_upgrade, parser=p)
    p = commands.add_parser(
        "doctor",
        help="look for what is wrong, and say how to mend it",
        description="Probe the configuration, the database, the clusters, images and shared folders. Changes nothing "
        "but what you agree to.",
        epilog="Example: trainmaster doctor --config master.yaml",
    )
    _add_place(p)
    p.add_argument("--image", action="append", default=[], help="also check that this image can be used")
    p.add_argument(
        "--account",
        action="append",
        default=[],
        metavar="NAME",
        help="also check the folders of jobs as this account (default: some that users are linked to)",
    )
    p.add_argument(
        "--storage",
        action="store_true",
        help="instead: find checkpoints without files, and files without a checkpoint, and offer to mend both",
    )
    p.set_defaults(run=_doctor, parser=p)
    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="the master's configuration")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the master's folder (default: ~/.local/share/trainmaster)"
    )


def _serve(args: argparse.Namespace) -> int:
    from trainmaster.master import main

    config = _config(args)
    if config is None:
        return 1
    main.configure_logging(config.log.level)
    port = config.port if args.port is None else args.port
    place = main.MasterAddress(_data(args, config.data), args.host or config.host, port)
    try:
        main.serve(config, place, lambda: _read(args.config))
    except main.CannotServe as error:
        return _fail(str(error))
    return 0


def _db_upgrade(args: argparse.Namespace) -> int:
    from trainmaster.master import main
    from trainmaster.master.db import migrate

    config = _config(args)
    if config is None:
        return 1
    try:
        with main.database(config, _data(args, config.data)) as (engine, _):
            print(f"The database is at revision {migrate.current(engine)}.")
    except main.CannotServe as error:
        return _fail(str(error))
    return 0


def _config_check(args: argparse.Namespace) -> int:
    from trainmaster.master import site

    config = _config(args)
    if config is None:
        return 1
    try:
        summary = site.dry_run(config)
    except site.BadSite as error:
        return _fail(f"{args.config}: {error}")
    for line in summary:
        print(line)
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from trainmaster.master import doctor

    config = _config(args)
    if config is None:
        return 1
    if args.storage:
        from trainmaster.master.storage_check import examine_storage

        return examine_storage(config, _data(args, config.data), _agreed)
    return doctor.examine(config, _data(args, config.data), args.image, args.account)


def _report_savings(args: argparse.Namespace) -> int:
    from trainmaster.master import main, savings_report

    config = _config(args)
    if config is None:
        return 1
    try:
        place = _data(args, config.data)
        report = savings_report.report_savings(config, place, args.since, args.most, args.replay)
    except (main.CannotServe, savings_report.NoSuchSearcher) as error:
        return _fail(str(error))
    admin_report.show(report, as_json=args.json)
    return 0


def _agreed(question: str) -> bool:
    """Ask at the terminal; without one, nothing is agreed to."""
    if not sys.stdin.isatty():
        print(f"       -> {question} Run this at a terminal to be asked.")
        return False
    return input(f"       {question} [y/N] ").strip().lower() in ("y", "yes")


def _config(args: argparse.Namespace) -> MasterConfig | None:
    """Return the configuration; None after its complaints were printed."""
    from trainmaster.config.messages import ConfigError

    try:
        config = _read(args.config)
    except UnicodeDecodeError as error:
        _fail(f"{args.config} is not UTF-8 text (byte {error.start}).")
        return None
    except OSError as error:
        _fail(f"{args.config} cannot be read: {error.strerror}.")
        return None
    except ConfigError as error:
        for complaint in error.complaints:
            print(complaint, file=sys.stderr)
        return None
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return config


def _read(path: Path | None) -> MasterConfig:
    """Read the configuration. Raises ConfigError, OSError, UnicodeDecodeError."""
    from trainmaster.config.master import parse_master

    return parse_master(path.read_text(encoding="utf-8") if path else "", source=str(path or "defaults"))


def _data(args: argparse.Namespace, configured: str | None) -> Path:
    default = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "trainmaster"
    return Path(args.data or configured or default).absolute()


def _fail(message: str) -> int:
    print(f"trainmaster: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
