"""Draws the best value over time of simulated searches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainmaster.cli.session import UsageError
from trainmaster.client.errors import ClientError
from trainmaster.client.view_records import SearchSimulation

KINDS = (".png", ".svg", ".pdf")


def check_picture(path: Path) -> None:
    """Raise UsageError for another kind of file, ClientError where nothing can be drawn: before the search runs."""
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"--plot takes a file that ends in {', '.join(KINDS)}, not {str(path)!r}")
    _figure_class()


def draw(answer: SearchSimulation, path: Path) -> None:
    """Write the picture: median and quartiles of the simulations, and what the recorded experiment found. Raises
    ClientError."""
    figure = _figure_class()(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    course = answer.course
    hours = [seconds / 3600 for seconds in course.seconds]
    known = [at for at, value in enumerate(course.median) if value is not None]
    band = [at for at in known if course.lower[at] is not None and course.upper[at] is not None]
    many = len(answer.runs) > 1
    name = f"{answer.searcher}, {answer.workers} workers"
    label = f"{name}: median of {len(answer.runs)} simulations" if many else name
    axes.step([hours[at] for at in known], [course.median[at] for at in known], where="post", label=label)
    if many:
        axes.fill_between(
            [hours[at] for at in band],
            [course.lower[at] for at in band],
            [course.upper[at] for at in band],
            step="post", alpha=0.25, linewidth=0, label="quartiles",
        )  # fmt: skip
    if answer.recorded is not None and answer.recorded.bests:
        end = max(answer.recorded.seconds, answer.recorded.bests[-1][0])
        bests = [*answer.recorded.bests, (end, answer.recorded.bests[-1][1])]
        axes.step(
            [at / 3600 for at, _ in bests], [value for _, value in bests], where="post",
            color="black", linestyle="--", label="the recorded experiment",
        )  # fmt: skip
    axes.set_xlabel("hours")
    axes.set_ylabel(f"best {_literal(answer.metric)}")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ClientError(f"{path} cannot be written: {error.strerror or error}.") from None


def _literal(text: str) -> str:
    """Return a name that is not read as a formula."""
    return text.replace("$", r"\$")


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ClientError(
            "--plot needs matplotlib, which is not installed: `pip install 'trainmaster[plot]'`, or print --json and "
            "draw its `course`."
        ) from None
    return Figure
