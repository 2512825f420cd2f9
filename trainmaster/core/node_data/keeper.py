"""Copies what a job wants on its node, then holds it until the job ends: `python -m trainmaster.core.node_data.keeper`.

Reads one line of JSON from its standard input, answers with lines of JSON (`log`, then `ready` or `fault`), and ends
when its standard input does. Locks end with their process, so this one lives as long as the job.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any, List, Mapping, Tuple
from urllib.parse import quote, urlencode

from trainmaster.core.node_data.cache import Held, NodeCache
from trainmaster.core.node_data.errors import DataFault, Stopped
from trainmaster.core.node_data.sources import source_of
from trainmaster.core.store_requests import PATIENCE
from trainmaster.runtime.errors import MasterError
from trainmaster.runtime.master import MasterCalls
from trainmaster.runtime.prctl import die_with_parent

_TIMEOUT = 600.0  # seconds of one call: the master lists the store meanwhile


def main() -> None:
    """Do what the first line of standard input says."""
    die_with_parent(int(sys.argv[1]))
    # The runtime decides when this ends: a signal to the whole job must not let go of what the training reads.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    order = json.loads(sys.stdin.readline())
    stopped = threading.Event()
    ended = threading.Thread(target=_until_the_end, args=(stopped,), daemon=True)
    ended.start()
    try:
        held, cache = _hold(order, stopped)
    except Stopped:
        return
    except (DataFault, OSError) as error:
        _say(fault=str(error))
        return
    _say(ready=True)
    ended.join()
    for one in held:
        cache.drop(one)


def _hold(order: Mapping[str, Any], stopped: threading.Event) -> Tuple[List[Held], NodeCache]:
    given = order["master"]
    master = MasterCalls(given["url"], given["token"], url_file=given["url_file"], url_owner=given["url_owner"])
    cache = NodeCache(order["folder"], order["limit"], lambda text: _say(log=text), stopped.is_set)
    os.makedirs(order["links"], exist_ok=True)
    held = []
    for item in order["items"]:
        try:
            source = source_of(item["source"], item["unpack"], _Pages(master, order["allocation_id"], item["name"]))
            one = cache.hold(item["name"], source, item["keep"])
        except (DataFault, OSError) as error:
            raise DataFault("data %s: %s" % (item["name"], error)) from None
        held.append(one)
        os.symlink(one.content, os.path.join(order["links"], item["name"]))
    return held, cache


class _Pages:
    """The master's lists of an item's files in the object store."""

    def __init__(self, master: MasterCalls, allocation_id: str, name: str) -> None:
        self._master = master
        self._path = "/api/x1/allocations/%s/data/%s" % (quote(allocation_id, safe=""), quote(name, safe=""))

    def __call__(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        """Raise DataFault."""
        try:
            answer: Mapping[str, Any] = self._master.call_with_retry(
                "GET", "%s?%s" % (self._path, urlencode(query)), patience=PATIENCE, timeout=_TIMEOUT
            )
        except MasterError as error:
            raise DataFault(str(error)) from None
        return answer


def _until_the_end(stopped: threading.Event) -> None:
    sys.stdin.read()
    stopped.set()


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
