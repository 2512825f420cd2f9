"""Formats messages for Slack's incoming webhooks as Determined 0.38.1 does: a line of text, and below it an attachment
in the colour of the state. https://api.slack.com/reference/block-kit"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.master.values.stored import Json


@dataclass(frozen=True)
class StateStyle:
    """How a state is shown: the line, the mark before the experiment's name, the colour, the word for the state."""

    line: str
    mark: str
    colour: str
    word: str


_STYLES: Mapping[str, StateStyle] = {
    "COMPLETED": StateStyle("Your experiment completed successfully 🎉", "✅ ", "#13B670", "Completed"),
    "ERROR": StateStyle("Your experiment has stopped with errors", "❌ ", "#DD5040", "Errored"),
}


@dataclass(frozen=True)
class Alert:
    """An alert of training code."""

    level: str
    title: str
    description: str


def of_experiment(facts: Mapping[str, Any], trial_id: int | None = None, alert: Alert | None = None) -> Json:
    """Return a state, or an alert, of the experiment with these `facts`: id, name, state, duration (seconds), workspace
    and project."""
    state = str(facts["state"])
    style = _STYLES.get(state) or StateStyle(f"The status of your experiment is {state}", "", "#009bde", state)
    hours, rest = divmod(int(facts["duration"]), 3600)
    about = {
        "Status": style.word,
        "Duration": f"{hours}h {rest // 60}min",
        "Workspace": facts["workspace"],
        "Project": facts["project"],
        **({"Trial ID": trial_id} if trial_id else {}),
        **({"Reason": facts["reason"]} if facts.get("reason") else {}),
    }
    title = f"{style.mark}{_plain(str(facts['name']))} (#{facts['id']})"
    headline = _block("plain_text", style.line)
    if alert is not None:
        headline["fields"] = _fields({"Level": alert.level, "Title": alert.title, "Description": alert.description})
    attachment = {"color": style.colour, "blocks": [{**_block("mrkdwn", title), "fields": _fields(about)}]}
    return {"blocks": [headline], "attachments": [attachment]}


def of_log(who: Iterable[tuple[str, object]], node: str, line: str, pattern: str, logs: str) -> Json:
    """Return a line in the log of a task. `who`: what the task is, as names and values; `logs`: how to read the whole
    log."""
    task = ", ".join(f"{name} `{_plain(str(value))}`" for name, value in who)
    text = (
        f"{task}, running on node `{_plain(node)}`, reported a log\n```{_plain(line)}```\n"
        f"This log matched the regex\n```{_plain(pattern)}```\n{logs}"
    )
    return {"blocks": [_block("mrkdwn", text)]}


def of_test() -> Json:
    """Return the message of a test event."""
    return {"blocks": [_block("plain_text", "test")]}


def _block(kind: str, text: str) -> Json:
    return {"type": "section", "text": {"type": kind, "text": text}}


def _fields(named: Mapping[str, object]) -> list[Json]:
    return [{"type": "mrkdwn", "text": f"*{name}*: {_plain(str(value))}"} for name, value in named.items()]


def _plain(text: str) -> str:
    """Escape characters that Slack would turn into a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
