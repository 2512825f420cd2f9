"""Acts on lines of a task's log: log policies of the experiment, and webhooks with a pattern.

It acts before the lines themselves are stored, in a transaction of its own, and only where something matches: the
locks of a trial must not be taken after those of its log. So the code that stores lines fetches the patterns along with
its own query (`waiting`), and where `matching` finds a match, it starts again after `act`. A master that crashes in
between receives the same lines again, and everything here is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, Text, bindparam, func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import InstrumentedAttribute

from trainmaster.config.patterns import BadPattern, compiled
from trainmaster.master.db.tables import Experiment, Project, Story, Trial
from trainmaster.master.db.webhooks import Webhook, WebhookMatch, WebhookTrigger
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.events import webhooks
from trainmaster.master.services.logs import log_store
from trainmaster.master.values.configs import LogRule, StoredConfig
from trainmaster.master.values.webhooks import TriggerCondition

SHOWN = 200  # characters of a line in sentences


@dataclass(frozen=True)
class WatchedLine:
    """A line that is being stored in the log of a task, and the node that wrote it."""

    text: str
    node: str = ""

    @property
    def shown(self) -> str:
        """The line shortened for a sentence that is stored."""
        return self.text.replace("\0", "\ufffd")


@dataclass(frozen=True)
class LogMatch:
    trial_id: int
    policies: Sequence[tuple[LogRule, WatchedLine]]
    triggers: Sequence[tuple[int, WatchedLine]]


def waiting(task_id: ColumnElement[str] | InstrumentedAttribute[str]) -> ScalarSelect[Any]:
    """Return the patterns for a task's log, in the form that `matching` needs; NULL for standalone tasks."""
    trigger, hook = WebhookTrigger, Webhook
    sent = select(WebhookMatch.trigger_id).where(WebhookMatch.trigger_id == trigger.id, WebhookMatch.task_id == task_id)
    sent = sent.correlate_except(WebhookMatch)
    triggers = (
        select(func.jsonb_agg(func.jsonb_build_array(trigger.id, trigger.condition[TriggerCondition.REGEX].astext)))
        .join(hook, hook.id == trigger.webhook_id)
        .where(
            trigger.kind == webhooks.TASK_LOG,
            or_(hook.workspace_id.is_(None), hook.workspace_id == Project.workspace_id),
            ~sent.exists(),
        )
        .correlate_except(trigger, hook)
        .scalar_subquery()
    )
    return (
        select(func.jsonb_build_array(Trial.id, Experiment.config[StoredConfig.LOG_POLICIES], triggers))
        .join(Experiment, Experiment.id == Trial.experiment_id)
        .join(Project, Project.id == Experiment.project_id)
        .where(Trial.task_id == task_id)
        .scalar_subquery()
    )


def matching(waited: Sequence[Any] | None, lines: Callable[[], Iterable[WatchedLine]]) -> LogMatch | None:
    """Return the matches of `lines` with the patterns. `lines` is called only where there are patterns."""
    trial_id, policies, triggers = waited or (0, None, None)
    if not (policies or triggers):
        return None
    match = _matches(trial_id, policies or (), triggers or (), lines())
    return match if match.policies or match.triggers else None


class LogWatch(BoundService):
    """Actions on lines of a log."""

    def act_on(self, task_id: str, lines: Callable[[], Iterable[WatchedLine]]) -> None:
        """Act on matches of `lines`. `lines` is called only where there are patterns."""
        with self._store.autocommit() as session:
            waited = session.scalar(_WAITING, {"task_id": task_id})
        if (match := matching(waited, lines)) is not None:
            self.act(task_id, match)

    def act(self, task_id: str, match: LogMatch) -> None:
        notes = log_store.Notes()
        with self._store.transaction() as session:
            trial = session.get(Trial, match.trial_id, with_for_update=True)
            if trial is None:
                return
            for policy, line in match.policies:
                for line_for_log in _apply(trial, policy, line):
                    why = f"the log says: {line.shown[:SHOWN]}"
                    name = policy.label
                    story = Story(
                        experiment_id=trial.experiment_id,
                        trial_id=trial.id,
                        at=now(),
                        subject="trial",
                        event="LogPolicy",
                    )
                    story.why = f"{name}: {line_for_log}; {why}"
                    session.add(story)
                    notes.say(task_id, f"The log policy {name} has matched: {line_for_log}", "WARNING")
            _notify(session, trial, task_id, match.triggers)
            session.flush()
            notes.write(session)


_WAITING = select(waiting(bindparam("task_id", type_=Text)))


def _matches(
    trial_id: int,
    policies: Sequence[Mapping[str, Any]],
    triggers: Sequence[Sequence[Any]],
    lines: Iterable[WatchedLine],
) -> LogMatch:
    """Return the first matching line for each pattern, reading each line once."""
    wanted = [rule for rule in map(LogRule.from_json, policies) if rule.pattern]
    waiting = [(int(number), str(pattern)) for number, pattern in triggers]
    by_policy: list[tuple[LogRule, WatchedLine]] = []
    by_trigger: list[tuple[int, WatchedLine]] = []
    for line in lines:
        for policy in [policy for policy in wanted if _fits(policy.pattern, line.text)]:
            # Each matching line excludes its node; everything else happens once.
            if policy.action != "exclude_node":
                wanted.remove(policy)
            if (policy, line) not in by_policy:
                by_policy.append((policy, line))
        for pair in [pair for pair in waiting if _fits(pair[1], line.text)]:
            waiting.remove(pair)
            by_trigger.append((pair[0], line))
    return LogMatch(trial_id, by_policy, by_trigger)


def _fits(pattern: str, text: str) -> bool:
    try:
        return compiled(pattern).search(text) is not None
    except BadPattern:  # of a configuration that an earlier version accepted
        return False


def _apply(trial: Trial, policy: LogRule, line: WatchedLine) -> Iterable[str]:
    """Apply a policy to a trial; return what is new, as a text."""
    name, action = policy.label, policy.action
    if action == "cancel_retries" and trial.no_retries is None:
        trial.no_retries = f"the log policy {name} allows no restart after such a line"
        yield "if this attempt fails, no other follows"
    elif action == "exclude_node" and line.node and line.node not in trial.blocked_nodes:
        trial.blocked_nodes = [*trial.blocked_nodes, line.node]
        yield f"therefore will not schedule on {line.node}"
    elif action is None and trial.log_policy != name:
        yield "it is shown with the trial"
    trial.log_policy = name


def _notify(session: Any, trial: Trial, task_id: str, matched: Sequence[tuple[int, WatchedLine]]) -> None:
    if not matched:
        return
    config = session.get_one(Experiment, trial.experiment_id).config
    for trigger_id, line in matched:
        trigger = session.get(WebhookTrigger, trigger_id, with_for_update={"key_share": True})
        if trigger is None:
            continue
        hook = session.get_one(Webhook, trigger.webhook_id)
        if not webhooks.wanted_by(config, [hook]):
            continue
        row = {"trigger_id": trigger_id, "task_id": task_id}
        new = session.execute(insert(WebhookMatch).values(**row).on_conflict_do_nothing()).rowcount
        if new:
            webhooks.log_matched(session, trigger, hook, trial, webhooks.MatchedLine(task_id, line.node, line.shown))
