"""Progress of `det experiment wait`: one line that is updated on a terminal, one line per change elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from trainmaster.cli.terminal import clean, unfiltered
from trainmaster.client.experiment import Experiment
from trainmaster.client.master import Master
from trainmaster.client.patience import Patience

LINE_INTERVAL = 5.0  # seconds between lines when not on a terminal, to keep log files short
BAR_WIDTH = 20  # characters


def watch(
    connect: Callable[[], Master], experiment_id: int, interval: float, patience: float | None = None
) -> Experiment:
    """Return the experiment once it has ended, showing progress on stderr meanwhile.

    Args:
        connect: Opens a session.
        interval: Seconds between requests.
        patience: Seconds to keep trying while the master does not answer; None: DET_PATIENCE, else 600.

    Returns:
        The experiment as it ended.

    Raises:
        MasterUnreachable: The master did not answer for longer than `patience`.
        APIError: The master refuses the call.
    """
    display = _Display()
    waiting = Patience(patience, display.note)
    try:
        master = waiting.ask(connect)
        while True:
            experiment, line = waiting.ask(lambda: _look(master, experiment_id))
            display.show(line, last=experiment.ended_for_good)
            if experiment.ended_for_good:
                return experiment
            time.sleep(interval)
    finally:
        display.close()


def _look(master: Master, experiment_id: int) -> tuple[Experiment, str]:
    experiment = master.experiment(experiment_id)
    return experiment, _line(master, experiment)


class _Display:
    def __init__(self) -> None:
        self._moving = sys.stderr.isatty()
        self._shown = ""
        self._at = 0.0

    def show(self, line: str, *, last: bool = False) -> None:
        due = self._moving or last or time.monotonic() >= self._at + LINE_INTERVAL
        if line == self._shown or not due:
            return
        if self._moving:
            import shutil

            shown = clean(line)[: shutil.get_terminal_size().columns - 1]
            print(f"\r\x1b[K{shown}", end="", file=unfiltered(sys.stderr), flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
        self._shown, self._at = line, time.monotonic()

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self.close()
        print(f"det: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._moving and self._shown:
            print(file=sys.stderr, flush=True)
        self._shown = ""


def _line(master: Master, experiment: Experiment) -> str:
    states = {
        "paused": master.count_trials(experiment.id, ["PAUSED"]),
        "done": master.count_trials(experiment.id, ["COMPLETED"]),
        "canceled": master.count_trials(experiment.id, ["CANCELED"]),
        "failed": master.count_trials(experiment.id, ["ERROR"]),
    }
    states = {"active": max(experiment.num_trials - sum(states.values()), 0), **states}
    trials = ", ".join(f"{count} {word}" for word, count in states.items() if count)
    filled = round(BAR_WIDTH * experiment.progress)
    best = ""
    if experiment.best_metric is not None:
        best = f" | best {experiment.searcher_metric} {experiment.best_metric:.5g} (trial {experiment.best_trial_id})"
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    done = f"{100 * experiment.progress:.1f} %"
    why = f" | {experiment.reason}" if experiment.state == "PAUSED" and experiment.reason else ""
    return f"experiment {experiment.id} {experiment.state} [{bar}] {done} | trials: {trials or 'none yet'}{best}{why}"
