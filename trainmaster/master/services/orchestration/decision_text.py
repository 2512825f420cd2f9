"""Renders a decision of a state machine as a sentence for `det trial story`."""

from __future__ import annotations

from trainmaster.master.lifecycle import experiment as experiments
from trainmaster.master.lifecycle import trial as trials
from trainmaster.master.lifecycle.decisions import Allocate, End, Preempt, WriteLog


def in_words(decision: trials.Decision | experiments.Decision) -> str:
    """Return the sentence for a decision, without a full stop; a reason follows a colon."""
    match decision:
        case Allocate(attempt, delay):
            return f"attempt {attempt} is to start" + (f" in {delay} s" if delay else "")
        case Preempt(reason):
            return _with("the running attempt is asked to save its work and leave", reason)
        case End(reason):
            return _with("the running attempt is ended at once", reason)
        case WriteLog(_, text):
            return text.rstrip(".")
        case trials.Finish(state, _, why):
            return _with(f"the trial ends as {state}", why)
        case experiments.Finish(state, why):
            return _with(f"the experiment ends as {state}", why)
        case experiments.Propagate(trials.Pause()):
            return "its trials are paused"
        case experiments.Propagate(trials.Activate()):
            return "its trials go on"
        case experiments.Propagate(trials.Stop(_, why)):
            return _with("its trials are stopped", why)
        case _:
            return str(decision)


def _with(sentence: str, why: str) -> str:
    return f"{sentence}: {why.rstrip('.')}" if why else sentence
