"""`det trial story`: the events of a trial and of its experiment, a sentence each."""

from __future__ import annotations

import re

from trainmaster.client.models import StoryEvent

# (subject, event) as the master stores them.
SENTENCES = {
    ("experiment", "Activate"): "The experiment was started or resumed",
    ("experiment", "Cancel"): "The experiment was cancelled: its trials save their work and leave",
    ("experiment", "Continue"): "The experiment was continued after its end",
    ("experiment", "Delete"): "The experiment was deleted",
    ("experiment", "Fail"): "The experiment failed",
    ("experiment", "Kill"): "The experiment was killed",
    ("experiment", "Pause"): "The experiment was paused",
    ("experiment", "Revived"): "The experiment runs again",
    ("experiment", "SearchDone"): "The search asks for no more trials",
    ("experiment", "TrialsLive"): "Trials of the experiment began or ended",
    ("search", "Create"): "The search asked for this trial",
    ("search", "Stop"): "The search stopped this trial",
    ("search", "started"): "The search began",
    ("trial", "Activate"): "The trial was resumed",
    ("trial", "AllocationEnded"): "An attempt of the trial ended",
    ("trial", "Created"): "The trial was created",
    ("trial", "Pause"): "The trial was paused",
    ("trial", "Revived"): "The trial runs again",
    ("trial", "Stop"): "The trial was asked to stop",
}


def sentence(event: StoryEvent) -> str:
    """What happened, why, and what state it led to. An event of a newer master is named by its own words."""
    said = SENTENCES.get((event.subject, event.event))
    if said is None:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", event.event).lower()
        said = f"{event.subject.capitalize()}: {words}"
    if event.why:
        said += f": {event.why.rstrip('.')}"
    if event.after and event.after != event.before:
        said += f" (now {event.after})"
    return said
