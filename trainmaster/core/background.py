"""Stores a checkpoint in a thread while the training continues. All ranks have one for the same checkpoint."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Callable, Dict, Mapping, Optional

from trainmaster.core.errors import CheckpointError

logger = logging.getLogger("trainmaster.core")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between two looks for the other ranks
_WORTH_SAYING = 1.0  # seconds


class Background:
    """A thread that does the work of one checkpoint.

    Args:
        work: Stores it, or raises.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end, and say what that took. Raises CheckpointError."""
        began = time.monotonic()
        self._thread.join()
        waited = time.monotonic() - began
        if waited >= _WORTH_SAYING:
            logger.info("waited %.1f s until the checkpoint in the background was stored", waited)
        if self._error is not None:
            raise CheckpointError("a checkpoint in the background failed: %s" % self._error) from self._error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # it is for the thread that waits
            self._error = error


def all_sent(call: Callable[[str, Mapping[str, Any]], Any], ranks: int) -> Dict[str, int]:
    """Wait until all ranks have sent their files; return the size of each file. `call`: to the master, about this
    checkpoint. Raises CheckpointError when one gives it up."""
    pause = _FIRST_PAUSE
    while True:
        state = call("done", {"rank": -1})
        if len(state["ranks"]) >= ranks:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    if state["missing"]:
        raise CheckpointError("%d files of the checkpoint have not arrived" % state["missing"])
    return {str(path): int(size) for path, size in call("done", {"rank": -1, "sizes": True})["sizes"].items()}
