"""Exit report: the exit record of a node and the unsent rest of its streams, on disk."""

from __future__ import annotations

from typing import Sequence

from trainmaster.runtime.exit_record import ExitRecord, make_durable, write_exit_record
from trainmaster.runtime.notice import print_notice
from trainmaster.runtime.spool import Stream


class ExitReport:
    """Written at once, but flushed to disk only when something has to rely on it: what the master has taken is safe
    there, and a flush would delay the end of every job."""

    def __init__(self, folder: str, record: ExitRecord, streams: Sequence[Stream]) -> None:
        self.record = record
        self._folder = folder
        self._streams = streams
        self._written = True
        self._durable = False
        try:
            write_exit_record(folder, record)
        except OSError as error:
            self._failed(error)

    @property
    def on_disk(self) -> bool:
        """Whether the job folder holds the whole report."""
        return self._written and not any(stream.degraded for stream in self._streams)

    def make_durable(self) -> None:
        """Flush to disk what was written. A second call does nothing."""
        if self._durable:
            return
        self._durable = True
        for stream in self._streams:
            stream.make_durable()
        if self._written:
            try:
                make_durable(self._folder, self.record.node_rank)
            except OSError as error:
                self._failed(error)

    def _failed(self, error: OSError) -> None:
        self._written = False
        print_notice("the exit record could not be left in the job folder: %s" % error)
