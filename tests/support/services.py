"""Requests to services in jobs, through the master, as a browser makes them."""

from __future__ import annotations

import urllib.error
import urllib.request

from tests.support.master import MasterProcess, wait_for
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport


def page(process: MasterProcess, path: str) -> str:
    """What the service answers, once it does."""
    transport = Transport(process.url)
    token = Master(transport).login("determined", process.password)
    transport.close()
    request = urllib.request.Request(f"{process.url}{path}", headers={"Authorization": f"Bearer {token}"})

    def look() -> str | None:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            if error.code not in (404, 502):  # it does not listen yet
                raise
            return None

    return wait_for(look, f"an answer of {path}")


def wait_over(master: Master, task_id: str) -> None:
    """Until a task has ended."""
    wait_for(lambda: master.tasks.task(task_id).get("endTime"), f"the end of {task_id}")
