"""Reads tables of learning curves for simulated searches: CSV, and NumPy's archives (NPZ)."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.client.errors import ClientError
from trainmaster.client.views import CurveTable
from trainmaster.learning_curves import by_unit

TRIAL, SECONDS = "trial", "seconds"  # columns that are no hyperparameters
ARRAYS = ("names", "points", "values", SECONDS)  # of an archive
MOST_UNITS = 1_000_000  # of all curves; a master takes as many values in a request unless it is told otherwise


@dataclass(frozen=True)
class CurveColumns:
    """Names in a configuration: the searcher's metric, and what trials are measured in; empty where it says nothing."""

    metric: str
    time: str = ""


@dataclass
class _Rows:
    """Of one trial: its hyperparameters, and by report the units that were trained, the value, the seconds of a
    unit."""

    line: int
    point: dict[str, Any]
    reports: list[tuple[float, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def read_table(path: Path, columns: CurveColumns, say: Callable[[str], None]) -> CurveTable:
    """Read a table by its ending, .csv or .npz; `say` is told what is assumed. Raises ClientError."""
    try:
        if path.suffix.lower() == ".npz":
            return _read_npz(path, say)
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _read_csv(path, csv.reader(file, strict=True), columns, say)
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise ClientError(f"{path} is not UTF-8 text.") from None
    except csv.Error as error:
        raise ClientError(f"{path} is not CSV: {error}.") from None


def _read_csv(path: Path, reader: Any, columns: CurveColumns, say: Callable[[str], None]) -> CurveTable:
    header = [name.strip() for name in next(reader, [])]
    for name, what in ((columns.metric, "the searcher's metric"), (columns.time, "the searcher's time metric")):
        if name and name not in header:
            raise ClientError(f"{path} has no column {name!r}, {what}; it has {_listed(header)}.")
    if twice := next((name for name in header if header.count(name) > 1), None):
        raise ClientError(f"{path} has two columns {twice!r}.")
    hparams = [name for name in header if name not in (TRIAL, SECONDS, columns.metric, columns.time)]
    trials: dict[Any, _Rows] = {}
    for cells in reader:
        line = reader.line_num
        if not any(cells):
            continue
        if len(cells) != len(header):
            raise ClientError(f"{path}, line {line}: {len(cells)} cells, but the header has {len(header)}.")
        row = dict(zip(header, map(str.strip, cells), strict=True))
        point = {name: value for name in hparams if (value := _plain(row[name])) is not None}
        key = row[TRIAL] if TRIAL in row else tuple((name, repr(value)) for name, value in point.items())
        trial = trials.setdefault(key, _Rows(line, point))
        if odd := next((name for name in hparams if trial.point.get(name) != point.get(name)), None):
            raise ClientError(
                f"{path}, line {line}: trial {row[TRIAL]} has another {odd} than in line {trial.line}; a trial keeps "
                "its hyperparameters."
            )
        unit = _number(path, line, row, columns.time) if columns.time else float(len(trial.reports) + 1)
        if unit <= 0 or not math.isfinite(unit):
            raise ClientError(f"{path}, line {line}: {columns.time} is {row[columns.time]!r}; it must be above 0.")
        trial.reports.append((unit, _number(path, line, row, columns.metric)))
        if SECONDS in row:
            trial.seconds.append(_number(path, line, row, SECONDS))
    if not trials:
        raise ClientError(f"{path} has no rows: a row is one report of a trial.")
    if SECONDS not in header:
        say(_NO_SECONDS.format(path))
    return _by_trial(path, list(trials.values()), columns)


_NO_SECONDS = "{} does not say how long a unit takes (seconds): one second is assumed"


def _by_trial(path: Path, trials: Sequence[_Rows], columns: CurveColumns) -> CurveTable:
    lasts = [int(max(unit for unit, _ in trial.reports)) for trial in trials]
    if short := next((trial for trial, last in zip(trials, lasts, strict=True) if last < 1), None):
        raise ClientError(f"{path}, line {short.line}: the trial ends before its first whole unit of {columns.time}.")
    _refuse_large(path, sum(lasts), columns.time)
    values = [by_unit(trial.reports, last) for trial, last in zip(trials, lasts, strict=True)]
    seconds = [sum(trial.seconds) / len(trial.seconds) if trial.seconds else 1.0 for trial in trials]
    return CurveTable([trial.point for trial in trials], [[_sent(value) for value in row] for row in values], seconds)


def _read_npz(path: Path, say: Callable[[str], None]) -> CurveTable:
    try:
        import numpy as np
    except ImportError:
        raise ClientError(
            f"Reading {path} needs numpy, which is not installed: `pip install numpy`, or write the table as CSV."
        ) from None
    import zipfile

    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, Any] = {
                name: file[name] for name in ("names", "points", "values", SECONDS) if name in file
            }
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise ClientError(f"{path} is no archive of plain NumPy arrays: {error}.") from None
    if missing := [name for name in ("names", "points", "values") if name not in arrays]:
        raise ClientError(
            f"{path} has no array {missing[0]!r}; it needs names, points and values, and may have seconds."
        )
    names, points, values = [str(name) for name in arrays["names"].ravel()], arrays["points"], arrays["values"]
    trials = len(points) if points.ndim else 0
    for name, shape in (("points", (trials, len(names))), ("values", (trials, None)), (SECONDS, (trials,))):
        found = arrays[name].shape if name in arrays else shape
        if len(found) != len(shape) or any(
            wanted not in (None, size) for wanted, size in zip(shape, found, strict=True)
        ):
            wanted = " x ".join("units" if size is None else str(size) for size in shape)
            raise ClientError(f"{path}: {name} has the shape {' x '.join(map(str, found))}; {wanted} is wanted.")
    for name in ("values", SECONDS):
        if name in arrays and arrays[name].dtype.kind not in "fiu":
            raise ClientError(f"{path}: {name} must be numbers, found {arrays[name].dtype}.")
    if SECONDS not in arrays:
        say(_NO_SECONDS.format(path))
    _refuse_large(path, int(values.size), "training")
    paces = arrays[SECONDS].tolist() if SECONDS in arrays else [1.0] * trials
    table: list[tuple[Mapping[str, Any], list[float | None], float]] = []
    for point, row, pace in zip(points.tolist(), values.tolist(), paces, strict=True):
        known = [_sent(value) for value in row]
        while known and known[-1] is None:  # shorter than others
            known.pop()
        if known:
            given = {name: _plain(value) for name, value in zip(names, point, strict=True)}
            table.append(({name: value for name, value in given.items() if value is not None}, known, float(pace)))
    if not table:
        raise ClientError(f"{path} has no trial with a value.")
    return CurveTable(*map(list, zip(*table, strict=True)))


def _refuse_large(path: Path, units: int, name: str) -> None:
    if units > MOST_UNITS:
        raise ClientError(
            f"{path}: the curves have {units} units of {name or 'training'}, more than the {MOST_UNITS} that a master "
            "takes. Measure trials in larger units, such as epochs, or keep fewer of them."
        )


def _number(path: Path, line: int, row: Mapping[str, str], name: str) -> float:
    """Return the number in a cell; an empty one is none."""
    text = row[name]
    try:
        return float(text) if text else math.nan
    except ValueError:
        raise ClientError(f"{path}, line {line}: {name} is {text!r}; a number is wanted.") from None


def _plain(value: Any) -> Any:
    """Return the value of a hyperparameter as YAML would read it; None where there is none."""
    from trainmaster.config.source import plain

    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, str):
        return value
    try:
        return plain(value) if value else None
    except ValueError:
        return value


def _sent(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
