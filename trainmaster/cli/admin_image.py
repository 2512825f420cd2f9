"""`trainmaster image`: the site's folder of images, for clusters without internet and without waiting."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainmaster.config.master import MasterConfig
    from trainmaster.containers.cache import ImageCache

Read = Callable[[argparse.Namespace], "MasterConfig | None"]
DAY = 86_400.0  # seconds


def add_to(parser: argparse.ArgumentParser, read: Read) -> None:
    """`read` gives the configuration that `--config` names; None after its complaints were printed."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    p = verbs.add_parser(
        "build",
        help="make an image from a recipe",
        description="Make an image from an Apptainer definition, or from a Dockerfile by way of the Docker daemon.",
        epilog="Example: trainmaster image build --root /shared/images site/pytorch:cuda cuda.def",
    )
    _add_root(p, read, _build)
    p.add_argument("name", metavar="NAME", help="by which experiments call it, such as org/name:tag")
    p.add_argument("recipe", metavar="RECIPE", help="a file, or one of ours: cpu.def, cuda.def, cpu.Dockerfile ...")
    p.add_argument(
        "--build-arg", action="append", default=[], metavar="NAME=VALUE", help="what the recipe leaves to choose"
    )
    _add_replace(p)
    p = verbs.add_parser(
        "pull",
        help="fetch an image",
        description="Fetch an image from a registry, the Docker daemon or a local archive, and convert it.",
        epilog="Example: trainmaster image pull --root /shared/images pytorch/pytorch:2.5.1",
    )
    _add_root(p, read, _pull)
    p.add_argument("name", metavar="NAME", help="by which experiments call it, such as org/name:tag")
    p.add_argument("source", nargs="?", metavar="SOURCE", help="docker-archive:FILE ... (default: docker://NAME)")
    _add_replace(p)
    p = verbs.add_parser(
        "add",
        help="put a file there",
        description="Copy a SIF or squashfs file, or convert an archive of docker save.",
        epilog="Example: trainmaster image add --root /shared/images site/pytorch:1 pytorch.sif",
    )
    _add_root(p, read, _add)
    p.add_argument("name", metavar="NAME", help="by which experiments call it, such as org/name:tag")
    p.add_argument("file", type=Path, metavar="FILE")
    _add_replace(p)
    p = verbs.add_parser(
        "list",
        help="print the images",
        description="Print name, size, checksum and last use of the images.",
        epilog="Example: trainmaster image list --root /shared/images --check",
    )
    _add_root(p, read, _list)
    p.add_argument("--check", action="store_true", help="compare all with their checksums; status 1 where one differs")
    p.add_argument("--json", action="store_true", help="for programs")
    p = verbs.add_parser(
        "prune",
        help="remove images",
        description="Remove images that nobody uses, or that are old.",
        epilog="Example: trainmaster image prune --root /shared/images --unused-for 90 --dry-run",
    )
    _add_root(p, read, _prune)
    p.add_argument("--unused-for", type=days, metavar="DAYS", help="that nobody has read for so long")
    p.add_argument("--older-than", type=days, metavar="DAYS", help="that were made so long ago")
    p.add_argument("--dry-run", action="store_true", help="only print what would be removed")


def days(text: str) -> float:
    number = float(text)
    if not 0 <= number < 100_000:
        raise ValueError(text)
    return number * DAY


def _add_replace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replace", action="store_true", help="also where there is one of this name")


def _add_root(
    parser: argparse.ArgumentParser, read: Read, verb: Callable[[argparse.Namespace, ImageCache], int]
) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--root", type=Path, metavar="DIR", help="the folder of images")
    where.add_argument("--config", type=Path, metavar="FILE", help="the master's configuration, which names it")
    parser.set_defaults(run=lambda args: _with_cache(args, read, verb), parser=parser)


def _with_cache(args: argparse.Namespace, read: Read, verb: Callable[[argparse.Namespace, ImageCache], int]) -> int:
    from trainmaster.containers.cache import ImageCache, ImageError, Tools

    root, program = args.root, None
    if root is None:
        config = read(args)
        if config is None:
            return 1
        for folder in filter(None, (manager.image_folder() for manager in config.managers)):
            root = root or Path(folder[0])
            program = program or folder[1]
    if root is None:
        return _fail("The configuration names no folder of images: set apptainer_image_root, or give --root.")
    apptainer = program or shutil.which("apptainer") or shutil.which("singularity") or "apptainer"
    try:
        return verb(args, ImageCache(root, Tools(apptainer), say=lambda text: print(text, file=sys.stderr, flush=True)))
    except ImageError as error:
        return _fail(str(error))


def _build(args: argparse.Namespace, cache: ImageCache) -> int:
    from trainmaster.containers.cache import builtin_recipe

    given = dict(entry.partition("=")[::2] for entry in args.build_arg)
    return _said(args, cache.build(args.name, builtin_recipe(args.recipe), given, replace=args.replace))


def _pull(args: argparse.Namespace, cache: ImageCache) -> int:
    return _said(args, cache.pull(args.name, args.source or f"docker://{args.name}", replace=args.replace))


def _add(args: argparse.Namespace, cache: ImageCache) -> int:
    return _said(args, cache.add(args.name, args.file, replace=args.replace))


def _said(args: argparse.Namespace, made: bool) -> int:
    print(f"{args.name} is there." if made else f"{args.name} was there already; --replace rebuilds it.")
    return 0


def _list(args: argparse.Namespace, cache: ImageCache) -> int:
    import time

    from trainmaster.cli.render import show_json, size, table

    images = cache.images()
    if args.json:
        show_json(
            [
                {"name": i.name, "path": str(i.path), "size": i.size, "sha256": i.checksum, "read": i.read_at}
                for i in images
            ]
        )
    else:
        headers = ("name", "size", "sha256", "last read" if cache.knows_reading else "made")
        rows = [
            (i.name, size(i.size), (i.checksum or "")[:12], time.strftime("%Y-%m-%d", time.localtime(i.read_at)))
            for i in images
        ]
        print(table(headers, rows))
    complaints = list(cache.complaints()) if args.check else []
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def _prune(args: argparse.Namespace, cache: ImageCache) -> int:
    if args.unused_for is None and args.older_than is None:
        return _fail("Say which: --unused-for DAYS, --older-than DAYS, or both.")
    gone = cache.prune(unused_for=args.unused_for, older_than=args.older_than, dry_run=args.dry_run)
    for image in gone:
        print(f"{'would remove' if args.dry_run else 'removed'} {image.name} ({image.size // 2**20} MB)")
    print(f"{sum(image.size for image in gone) // 2**20} MB in {len(gone)} image{'s' if len(gone) != 1 else ''}.")
    return 0


def _fail(message: str) -> int:
    print(f"trainmaster: {message}", file=sys.stderr)
    return 1
