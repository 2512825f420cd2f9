"""The state machine of the live connection, run by Node: no browser, no socket, no clock."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainmaster.master.api.webui import FOLDER

if shutil.which("node") is None:
    pytest.skip("Node runs the module, and is not here.", allow_module_level=True)

PROGRAM = """
import { readFileSync } from "node:fs";
import { initialState, reduce } from "./live_state.mjs";
let state = initialState(0, false);
const steps = JSON.parse(readFileSync(0, "utf8")).map(event => {
    const step = reduce(state, { random: 0.5, ...event });
    state = step.state;
    return step;
});
console.log(JSON.stringify(steps));
"""
Event = dict[str, Any]


def at(now: int, kind: str, **fields: Any) -> Event:
    return {"type": kind, "now": now, **fields}


def timer(now: int, name: str) -> Event:
    return at(now, "timer", name=name)


SUBSCRIBED = [at(0, "topics", count=1), timer(0, "send")]
OPEN = [*SUBSCRIBED, at(10, "ticket"), at(20, "ready"), at(30, "message", topic="mine")]


def run(folder: Path, events: list[Event]) -> list[dict[str, Any]]:
    """The state after each event, and its effects."""
    (folder / "live_state.mjs").write_text((FOLDER / "app/lib/live_state.js").read_text())
    (folder / "program.mjs").write_text(PROGRAM)
    command = ["node", str(folder / "program.mjs")]
    steps: list[dict[str, Any]] = json.loads(
        subprocess.run(command, input=json.dumps(events), capture_output=True, check=True, text=True).stdout
    )
    return steps


def names(step: dict[str, Any]) -> list[str]:
    return [effect.get("name") or effect.get("mode") or effect["type"] for effect in step["effects"]]


def delay(step: dict[str, Any], name: str) -> int | None:
    """Milliseconds of the timer that a step starts, None for none."""
    delays = [one["delay"] for one in step["effects"] if one["type"] == "start" and one["name"] == name]
    return delays[-1] if delays else None


def test_a_subscription_opens_a_connection(tmp_path: Path) -> None:
    steps = run(tmp_path, OPEN)
    assert [step["state"]["connection"] for step in steps] == ["closed", "ticket", "connecting", "connecting", "open"]
    assert {"type": "fetchTicket"} in steps[1]["effects"]
    assert names(steps[3]) == ["sendTicket"]
    assert steps[4]["effects"][-2:] == [
        {"type": "freshness", "mode": "live", "since": 30},
        {"type": "notify", "topic": "mine"},
    ]


def test_changes_of_topics_are_sent_together(tmp_path: Path) -> None:
    steps = run(tmp_path, [*OPEN, at(100, "topics", count=2), at(110, "topics", count=3), timer(420, "send")])
    assert delay(steps[-3], "send") == 320  # 400 ms after the last message
    assert delay(steps[-2], "send") is None
    assert names(steps[-1]) == ["sendTopics"]


def test_a_lost_connection_polls_and_retries_with_backoff(tmp_path: Path) -> None:
    retry = [timer(600, "retry"), at(610, "refused", unsupported=False)]
    steps = run(tmp_path, [*OPEN, at(100, "closed"), *retry])
    assert names(steps[5])[:2] == ["close", "silence"]
    assert (delay(steps[5], "retry"), delay(steps[5], "poll")) == (500, 5000)
    assert (delay(steps[7], "retry"), delay(steps[7], "poll")) == (1000, None)
    assert steps[5]["effects"][2] == {"type": "freshness", "mode": "polling", "since": 30}


def test_a_poll_notifies_every_topic_and_confirms_the_one_before(tmp_path: Path) -> None:
    steps = run(tmp_path, [*OPEN, at(100, "closed"), timer(5100, "poll"), timer(10_100, "poll")])
    assert {"type": "notifyAll"} in steps[-1]["effects"]
    assert steps[-1]["state"]["confirmedAt"] == 5100
    assert delay(steps[-1], "poll") == 5000


def test_master_without_live_updates_is_polled(tmp_path: Path) -> None:
    refused = at(10, "refused", unsupported=True)
    steps = run(tmp_path, [*SUBSCRIBED, refused, timer(600, "retry"), {**refused, "now": 610}])
    assert [delay(steps[step], "retry") for step in (2, 4)] == [500, 300_000]
    assert steps[4]["state"]["polling"]


def test_a_silent_connection_counts_as_lost(tmp_path: Path) -> None:
    steps = run(tmp_path, [*OPEN, timer(45_030, "silence")])
    assert steps[-1]["state"]["connection"] == "closed"
    assert delay(steps[4], "silence") == 45_000
    assert delay(steps[2], "silence") == 10_000, "while it opens"


def test_hidden_page_closes_connection_and_reopens_when_shown(tmp_path: Path) -> None:
    hide, show = at(1000, "visibility", hidden=True), at(90_000, "visibility", hidden=False)
    steps = run(tmp_path, [*OPEN, hide, timer(61_000, "hidden"), show])
    assert delay(steps[5], "hidden") == 60_000
    assert steps[6]["state"]["connection"] == "closed"
    assert delay(steps[6], "retry") is None
    assert {"type": "fetchTicket"} in steps[7]["effects"]


def test_an_outage_makes_the_page_stale_and_a_reconnect_notifies(tmp_path: Path) -> None:
    away, back = (at(now, "availability", available=there) for now, there in ((100, False), (900, True)))
    steps = run(tmp_path, [*OPEN, away, timer(5000, "poll"), back, at(900, "reconnect")])
    assert names(steps[5]) == ["stale"]
    assert names(steps[7]) == ["live"]
    assert names(steps[8]) == ["notifyAll", "live"]


def test_a_page_without_topics_connects_to_nothing(tmp_path: Path) -> None:
    steps = run(tmp_path, [at(0, "topics", count=0), timer(0, "send"), at(1, "reconnect")])
    assert names(steps[0]) == ["unknownFreshness", "send"]
    assert [step["state"]["connection"] for step in steps] == ["closed"] * 3
