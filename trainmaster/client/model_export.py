"""Exports a version of a model as a folder that needs no master: files, code, configuration, origin and a README."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.client.code_archive import unpack
from trainmaster.client.errors import ClientError
from trainmaster.config.source import write

if TYPE_CHECKING:
    from trainmaster.client.models import ModelVersion
    from trainmaster.client.view_records import GitView, TrainingOrigin, VersionOrigin

CHECKPOINT, CODE, CONFIG, DIFF, ORIGIN = "checkpoint", "code", "experiment.yaml", "uncommitted.diff", "origin.json"
MOST_FILES = 100  # named in the README


@dataclass(frozen=True)
class ExportSources:
    """Where the parts of an export come from: `checkpoint` writes its files to a new folder, `code` returns the gzipped
    tar of an experiment's files."""

    checkpoint: Callable[[Path], object]
    code: Callable[[int], bytes]


def export(
    target: Path,
    version: ModelVersion,
    aliases: Sequence[str],
    origin: VersionOrigin,
    files: Mapping[str, int],
    sources: ExportSources,
) -> None:
    """Write the folder, whole or not at all. `files`: the checkpoint's, with their sizes.

    Raises:
        ClientError: The target exists, or the version's files or code cannot be read or written.
    """
    if target.is_symlink() or target.exists():
        raise ClientError(f"{target} already exists; name another folder.")
    partial = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        sources.checkpoint(partial / CHECKPOINT)
        training = origin.training
        if training is not None:
            (partial / CODE).mkdir()
            if code := sources.code(training.experiment):
                unpack(code, partial / CODE)
            (partial / CONFIG).write_text(write(training.config), encoding="utf-8")
            if training.git is not None and training.git.diff:
                (partial / DIFF).write_text(training.git.diff, encoding="utf-8")
        (partial / ORIGIN).write_text(json.dumps(asdict(origin), indent=2, default=_plain) + "\n", encoding="utf-8")
        (partial / "README.md").write_text("\n".join(_readme(version, aliases, origin, files)) + "\n", encoding="utf-8")
        partial.rename(target)
    except OSError as error:
        raise ClientError(f"{target} could not be written: {error}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _readme(
    version: ModelVersion, aliases: Sequence[str], origin: VersionOrigin, files: Mapping[str, int]
) -> Iterator[str]:
    training = origin.training
    yield f"# {_word(version.model_name)}, version {version.version}"
    for text in (str(version.raw["model"].get("description") or ""), str(version.raw.get("comment") or "")):
        if text:
            yield f"\n{_word(text)}"
    yield "\n| | |\n|---|---|"
    for name, value in facts(aliases, origin):
        yield f"| {name} | {_word(value)} |"
    yield f"\n## Files\n\n- `{CHECKPOINT}/`: the checkpoint"
    names = [path for path in files if not path.endswith("/")]
    for path in names[:MOST_FILES]:
        yield f"    - `{_word(path)}`, {files[path]} bytes"
    if len(names) > MOST_FILES:
        yield f"    - and {len(names) - MOST_FILES} more"
    if training is not None:
        yield f"- `{CODE}/`: the code that trained it\n- `{CONFIG}`: its configuration, without secrets"
        if training.git is not None and training.git.diff:
            yield f"- `{DIFF}`: what was changed since the commit"
    yield f"- `{ORIGIN}`: all of this page for programs"
    if training is not None:
        yield "\n## Hyperparameters\n"
        yield from _indented(write(dict(training.hparams)))
        yield "\n## Train it again\n"
        yield from _indented("\n".join(_again(training)))


def facts(aliases: Sequence[str], origin: VersionOrigin) -> Iterator[tuple[str, str]]:
    """Yield what is known of a version's origin, as names and words."""
    training = origin.training
    if aliases:
        yield "aliases", ", ".join(aliases)
    yield "checkpoint", f"{origin.checkpoint}, {origin.size} bytes, after {origin.steps} batches, {_day(origin.saved)}"
    if training is None:
        yield "training", "not known, or not shown to the user who exported this"
        return
    if origin.metric is not None:
        better = "smaller" if training.smaller_is_better else "larger"
        yield training.metric_name, f"{origin.metric} ({better} is better)"
    yield "training", f"trial {training.trial} of experiment {training.experiment} ({training.experiment_name})"
    yield "by", f"{training.owner}, {_day(training.created)}"
    if training.git is not None:
        yield "code", _commit(training.git)
    for kind, image in training.images.items():
        yield f"image ({kind})", image
    if training.image_digests:
        yield "content of the image", ", ".join(training.image_digests)
    if training.data:
        yield "data", ", ".join(training.data)
    if training.jobs:
        yield "jobs", ", ".join(training.jobs)


def _commit(git: GitView) -> str:
    changed = f", with {git.changed_lines} changed lines" if git.diff else ""
    where = f" of {git.remote}" if git.remote else ""
    return f"commit {git.commit}{where}{f' ({git.branch})' if git.branch else ''}{changed}"


def _again(training: TrainingOrigin) -> Iterator[str]:
    git = training.git
    if git is not None and git.remote:
        yield f"# The code is also commit {git.commit} of its repository."
    yield f"det experiment create {CONFIG} {CODE}/"


def _indented(text: str) -> Iterator[str]:
    """Lines of a block of code: indented, so that none can end it."""
    return (f"    {line}" for line in text.splitlines())


def _word(text: str) -> str:
    """Text of others in a line or a cell of Markdown."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def _day(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d")
