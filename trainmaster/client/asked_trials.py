"""Trials that your own program runs: ask for one, tell what it measures, and do what the search decides."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.client.patience import Patience
from trainmaster.client.transport import Transport

WAIT = 30.0  # seconds of one request


@dataclass
class AskedTrial:
    """A trial that this program runs. `steps`: of its last report; larger than 0 for one that continues: load what it
    saved. `parent`: the id of the trial whose checkpoint it begins with; None: with nothing. `decision`: what to do:
    `continue`, `pause` (save it; somebody will be given it again) or `stop`."""

    id: int
    hparams: Mapping[str, Any]
    seed: int
    steps: int
    parent: int | None
    search: AskTell = field(repr=False, compare=False)
    decision: str = "continue"

    def tell(self, steps: int, metrics: Mapping[str, Any]) -> bool:
        """Tell the metrics of a validation.

        Args:
            steps: Of training so far.
            metrics: By name; the searcher's metric and its time metric among them.

        Returns:
            Whether to continue; else `decision` says what to do.
        """
        return self._tell({"steps": steps, "metrics": dict(metrics)})

    def alive(self) -> bool:
        """Tell that it still trains. Returns as `tell`."""
        return self._tell({})

    def end(self, how: str = "completed") -> None:
        """Tell that it is over: `completed`, `failed`, `out_of_memory`, or `invalid` (its hyperparameters are)."""
        self._tell({"end": how})

    def _tell(self, report: Mapping[str, Any]) -> bool:
        (self.decision,) = self.search.tell([{"trial_id": self.id, **report}])
        return self.decision == "continue"


class AskTell:
    """The trials of an experiment with `searcher.ask_tell`. Several programs may run them at the same time."""

    def __init__(self, http: Transport, experiment_id: int, patience: float | None) -> None:
        """Use `Master.ask_tell`."""
        self._http, self._patience = http, Patience(patience)
        self._path = f"/api/x1/experiments/{experiment_id}"

    def __iter__(self) -> Iterator[AskedTrial]:
        """Yield one trial after the other, until the search is over."""
        while True:
            began = time.monotonic()
            trials, over = self.ask(1)
            yield from trials
            if over:
                return
            if not trials and time.monotonic() - began < 1:
                time.sleep(1)  # the master lets nobody wait

    def ask(self, count: int = 1, *, wait: float = WAIT) -> tuple[list[AskedTrial], bool]:
        """Take trials that nobody runs.

        Args:
            count: How many at most.
            wait: Seconds to wait for one.

        Returns:
            The trials, perhaps none; and whether the search is over.

        Raises:
            NoSuchThing: There is no such experiment.
            APIError: It runs its trials as jobs.
        """
        body = {"count": count, "timeout_seconds": wait}
        # Not repeated: trials that an answer was lost with are free again after a while.
        answer = self._http.request("POST", f"{self._path}/ask", body=body, retry=False)
        return [AskedTrial(**each, search=self) for each in answer["trials"]], answer["over"]

    def tell(self, reports: list[dict[str, Any]]) -> list[str]:
        """Tell what trials measured, all or nothing: `trial_id`, and `steps` and `metrics`, or `end`.

        Returns:
            For each `continue`, `pause` or `stop`.
        """
        answer = self._patience.ask(lambda: self._http.request("POST", f"{self._path}/tell", body={"reports": reports}))
        return list(answer["decisions"])
