"""Sentences of `det trial story`: one for each event of a trial and its experiment."""

from __future__ import annotations

import re

from trainmaster.client.models import StoryEvent

# (subject, event) as the master stores them.
SENTENCES = {
    ("experiment", "Activate"): "The experiment was started or resumed",
    ("experiment", "Cancel"): "The experiment was cancelled: its trials save their work and end",
    ("experiment", "Continue"): "The experiment was continued after its end",
    ("experiment", "Delete"): "The experiment was deleted",
    ("experiment", "Fail"): "The experiment failed",
    ("experiment", "Kill"): "The experiment was killed",
    ("experiment", "Pause"): "The experiment was paused",
    ("experiment", "Revived"): "The experiment runs again",
    ("experiment", "SearchDone"): "The searcher needs no more trials",
    ("experiment", "TrialsLive"): "Trials of the experiment began or ended",
    ("search", "Create"): "The searcher created this trial",
    ("search", "Stop"): "The searcher stopped this trial",
    ("search", "started"): "The search began",
    ("trial", "Activate"): "The trial was resumed",
    ("trial", "AllocationEnded"): "An attempt of the trial ended",
    ("trial", "Created"): "The trial was created",
    ("trial", "Pause"): "The trial was paused",
    ("trial", "Revived"): "The trial runs again",
    ("trial", "Stop"): "The trial was asked to stop",
}


def sentence(event: StoryEvent) -> str:
    """Return what happened, why, and the state that followed. An event that this client does not know is named as it
    is."""
    text = SENTENCES.get((event.subject, event.event))
    if text is None:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", event.event).lower()
        text = f"{event.subject.capitalize()}: {words}"
    if event.why:
        text += f": {event.why.rstrip('.')}"
    if event.after and event.after != event.before:
        text += f" (now {event.after})"
    return text
