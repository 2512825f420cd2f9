"""`Connection`: the calls of the SDK, with the job's own session."""

from __future__ import annotations

import contextlib
import enum
import json
import os
from typing import Any, BinaryIO, Dict, Iterator, Mapping, Optional, Type, TypeVar, Union
from urllib.parse import quote, urlencode

from trainmaster.core.errors import CoreError, MasterAway
from trainmaster.core.info import get_cluster_info
from trainmaster.runtime.errors import CallFailed, CallRejected
from trainmaster.runtime.master import MasterCalls

PATIENCE = 60.0  # seconds in which a master that restarts is back
_PAGE = 500  # rows of a list that are asked for at once

E = TypeVar("E", bound=enum.Enum)


class Connection:
    """The master, as the owner of this job.

    Raises:
        RuntimeError: This process is in no job.
    """

    def __init__(self) -> None:
        info = get_cluster_info()
        if info is None or info.runtime_info is None:
            raise RuntimeError(
                "this is determined.experimental.client of trainmaster, which works in jobs: elsewhere install the "
                "package determined, or call trainmaster.client"
            )
        runtime = info.runtime_info
        self.url = info.master_url
        # The owner's own session, where the job has one: it may do what the trial itself may not.
        token = os.environ.get("DET_USER_TOKEN") or info.session_token
        self._master = MasterCalls(
            info.master_url, token, url_file=runtime.master_url_file, url_owner=runtime.master_url_owner
        )

    def call(
        self, method: str, path: str, body: Any = None, query: Optional[Mapping[str, Any]] = None
    ) -> Dict[str, Any]:
        """Make one call.

        Args:
            method: Of HTTP.
            path: Without the master's address.
            body: What becomes JSON.
            query: Names and values; None leaves a name out.

        Raises:
            CoreError: The master refuses, in its words.
            MasterAway: It cannot be asked.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        where = path + ("?" + urlencode(given, doseq=True) if given else "")
        with _said("%s %s" % (method, path)):
            if method == "GET":
                answer = self._master.call_with_retry(method, where, patience=PATIENCE)
            else:
                # Once, on a new connection: when its answer is lost, an experiment may have been created.
                self._master.close()
                answer = self._master.call(method, where, body, timeout=PATIENCE)
        return answer if isinstance(answer, dict) else {}

    def download(self, path: str, file: BinaryIO) -> None:
        """Write what lies at `path` into a file, however large it is.

        Raises:
            CoreError: The master refuses.
            MasterAway: It cannot be asked.
        """
        with _said(path):
            self._master.download(path, file, patience=PATIENCE, timeout=PATIENCE)

    def stream(self, path: str, query: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
        """Yield what a stream of the master yields: a line each. It has to end.

        Raises:
            CoreError: The master refuses, also in the middle.
            MasterAway: It cannot be asked.
        """
        given = {name: value for name, value in query.items() if value is not None}
        with _said(path):
            where = path + "?" + urlencode(given, doseq=True)
            answer = self._master.fetch(where, patience=PATIENCE, timeout=PATIENCE)
        for line in answer.splitlines():
            if line.strip():
                entry = json.loads(line.decode("utf-8"))
                if "error" in entry:
                    raise CoreError("GET %s: %s" % (path, entry["error"].get("message") or entry["error"]))
                yield entry["result"]

    def rows(
        self, path: str, key: str, query: Mapping[str, Any], most: Optional[int] = None
    ) -> Iterator[Dict[str, Any]]:
        """Yield the rows of a list, a page at a time.

        Args:
            path: Of the list.
            key: Under which an answer has the rows.
            query: Filter and order.
            most: How many rows. Default: all.
        """
        done = 0
        while most is None or done < most:
            limit = _PAGE if most is None else min(_PAGE, most - done)
            found = self.call("GET", path, query={**query, "offset": done, "limit": limit})[key]
            yield from found
            done += len(found)
            if len(found) < limit:
                return


@contextlib.contextmanager
def _said(what: str) -> Iterator[None]:
    """Turn the errors of calls into those of core."""
    try:
        yield
    except CallRejected as error:
        raise CoreError("%s: %s" % (what, error)) from error
    except CallFailed as error:
        raise MasterAway(str(error)) from error


def word(value: Union[enum.Enum, str, None]) -> Optional[str]:
    """Return the word that the API has for a member of an enum; text as it is."""
    return str(value.value) if isinstance(value, enum.Enum) else value


def member(kind: Type[E], value: Any) -> Any:
    """Return the member of an enum; a word that it does not know as it is."""
    try:
        return kind(value)
    except ValueError:
        return value


def quoted(name: Any) -> str:
    """Make a name a part of a path."""
    return quote(str(name), safe="")
