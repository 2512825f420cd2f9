"""Every event that the master stores has a sentence, and every decision."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import trainmaster.master
from trainmaster.cli.trial import SENTENCES, sentence
from trainmaster.client.models import StoryEvent
from trainmaster.master.lifecycle import experiment as experiments
from trainmaster.master.lifecycle import trial as trials
from trainmaster.master.lifecycle.decisions import Allocate, Preempt
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services.orchestration.decision_text import in_words


def test_every_event_that_is_stored_has_a_sentence() -> None:
    machines = {("trial", event.__name__) for event in get_args(trials.Event)}
    machines |= {("experiment", event.__name__) for event in get_args(experiments.Event)}
    text = "".join(path.read_text() for path in Path(trainmaster.master.__file__).parent.rglob("*.py"))
    named = set(re.findall(r"""\.story\(\s*"(\w+)", "(\w+)\"""", text))
    assert ("search", "Create") in named
    assert machines | named == set(SENTENCES)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (("search", "Create", "", "", "random point 3 of 16"), "The searcher created this trial: random point 3 of 16"),
        (("trial", "Created", "", "ACTIVE", ""), "The trial was created (now ACTIVE)"),
        (("trial", "Stop", "ACTIVE", "ACTIVE", "killed by ann."), "The trial was asked to stop: killed by ann"),
        (("trial", "WalltimeMoved", "ACTIVE", "PAUSED", ""), "Trial: walltime moved (now PAUSED)"),
    ],
)
def test_an_event_is_a_sentence(event: tuple[str, ...], expected: str) -> None:
    assert sentence(StoryEvent("2026-01-01T00:00:00Z", *event, decisions=())) == expected  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (Allocate(1), "attempt 1 is to start"),
        (Allocate(2, delay=30), "attempt 2 is to start in 30 s"),
        (Preempt("paused"), "the running attempt is asked to save its work and leave: paused"),
        (trials.Finish(State.COMPLETED, None, ""), "the trial ends as COMPLETED"),
        (experiments.Finish(State.CANCELED, "asked by ann."), "the experiment ends as CANCELED: asked by ann"),
        (experiments.Propagate(trials.Stop(trials.StopCause.SEARCHER, "rung 1")), "its trials are stopped: rung 1"),
        (experiments.Propagate(trials.Activate()), "its trials go on"),
    ],
)
def test_a_decision_is_a_sentence(decision: trials.Decision | experiments.Decision, expected: str) -> None:
    assert in_words(decision) == expected
