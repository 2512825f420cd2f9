"""Keeps a folder equal to event files in an object store, for a TensorBoard that shows them while they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, Optional
from urllib.parse import quote, urlencode

from trainmaster.core.errors import CheckpointError
from trainmaster.core.store_requests import Gone, Signed, Stale, StoreRequests
from trainmaster.runtime.errors import MasterError
from trainmaster.runtime.master import MasterCalls
from trainmaster.runtime.notice import print_notice

STORED = "store:"  # what the places of event files in object stores begin with
INTERVAL = 10.0  # seconds between looks at the store
_PATIENCE = 60.0  # seconds for a master that is away


class EventMirror:
    """The event files that one TensorBoard shows from object stores.

    Args:
        folders: Where what is shown under a name is to be.
    """

    def __init__(self, master: MasterCalls, allocation_id: str, folders: Mapping[str, Path]) -> None:
        self._master = master
        self._path = "/api/x1/allocations/%s/events" % quote(allocation_id, safe="")
        self._folders = folders
        self._requests: Optional[StoreRequests] = None
        self._told = ""

    def fetch(self) -> None:
        """Fetch what is new. A fault is said once, and tried again the next time."""
        try:
            for name, folder in self._folders.items():
                self._fetch(name, folder)
            self._told = ""
        except (MasterError, CheckpointError, OSError) as error:
            if str(error) != self._told:
                self._told = str(error)
                print_notice("event files could not be fetched: %s" % error)

    def _fetch(self, name: str, folder: Path) -> None:
        after: Optional[str] = ""
        while after is not None:
            query: Dict[str, Any] = {"name": name, "after": after}
            answer = self._master.call_with_retry("GET", "%s?%s" % (self._path, urlencode(query)), patience=_PATIENCE)
            if self._requests is None:
                self._requests = StoreRequests(str(answer["authority"]))
            for entry in answer["files"]:
                self._append(self._requests, entry, folder)
            after = answer["after"] or None

    def _append(self, requests: StoreRequests, entry: Mapping[str, Any], folder: Path) -> None:
        """Add to a file what it lacks: TensorBoard holds it open, and event files only grow."""
        parts = str(entry["path"]).split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise CheckpointError("the store has an event file whose path leads out of its folder: %r" % entry["path"])
        path = folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(str(path), "ab") as file:
            if file.tell() > entry["size"]:  # another file of this name
                file.truncate(0)
                file.seek(0)
            if file.tell() < entry["size"]:
                try:
                    requests.get(Signed.of(entry), file, int(entry["size"]))
                except (Stale, Gone):  # the next look has a new signature, or does not list it any more
                    return
