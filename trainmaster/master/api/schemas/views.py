"""Answers behind the views of the web page: one call each, slim rows in columns, times in seconds since 1970.

Numbers that JSON has no word for (NaN, infinities) are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

from typing import Any

from trainmaster.master.http.messages import Shape


class MetricName(Shape):
    group: str
    name: str


class RungView(Shape):
    """A rung of a bracket. `units`: how far a trial trains before it is compared here. `trials` reached it, the best
    first, with their `values`; null: it failed here. `cut`: the worst value that goes on now. `stopped`: how many
    were stopped here; `paused`: how many wait here."""

    units: int
    trials: list[int]
    values: list[float | None]
    cut: float | None
    stopped: int
    paused: int


class BracketView(Shape):
    rungs: list[RungView]
    trials: int
    running: int


class ExperimentHead(Shape):
    """What stands above every tab of an experiment. `state` has the phases of active ones (RUNNING, QUEUED, ...);
    `why` is one sentence on it. `time_metric`: units of `max_time`. `planned`: it has a budget of slot-hours or a
    deadline, and so a plan. `slot_seconds`: what its jobs have used.
    `seconds_saved`: slot-seconds that its stopped trials would have used further, at their own speed, had they trained
    to `max_time`; null where nothing is stopped early."""

    id: int
    name: str
    state: str
    why: str
    description: str
    notes: str
    labels: list[str]
    archived: bool
    unmanaged: bool
    user: str
    user_id: int
    project_id: int
    project: str
    workspace_id: int
    workspace: str
    parent: int | None
    job_id: str
    pool: str
    started: float
    ended: float | None
    progress: float
    searcher: str
    metric: str
    smaller_is_better: bool
    time_metric: str
    max_time: int | None
    max_trials: int | None
    planned: bool
    slots: int
    priority: int | None
    weight: float | None
    max_slots: int | None
    trials: int
    counts: dict[str, int]
    best: float | str | None
    best_trial: int | None
    checkpoints: int
    checkpoint_size: int
    slot_seconds: float
    seconds_saved: float | None


class Curves(Shape):
    """Series over one grid `x` of `x_name` (batches, seconds, or a reported metric). `y` has a row for each of
    `trials`, up to its last value; null where a trial reported nothing near. `last`: where each series ends. `pauses`:
    where the search paused each. `seq`: give it as `since` to get only trials that have reported more. `whole`: all
    trials are here, not only those that changed."""

    group: str
    metric: str
    x_name: str
    x: list[float]
    trials: list[int]
    y: list[list[float | None]]
    last: list[float | None]
    pauses: list[list[float]]
    whole: bool
    seq: int


class ExperimentBoard(Shape):
    """All of an experiment that its page shows first. `rows`: its trials, values in the order of `columns`. `hparams`:
    those that differ between trials, as columns `hp.NAME`; `constants`: the others. `hparam_types`: what the
    configuration says of each, as double, int, log, categorical or const. In the columns, `searchPause` is "paused" for
    a trial that waits for the search, `pauses` says how often it did, `parent` is the trial that it is a copy of,
    `unitsFrom` and `units` are where it began to report and how far it is."""

    experiment: ExperimentHead
    metrics: list[MetricName]
    hparams: list[str]
    hparam_types: dict[str, str]
    constants: dict[str, Any]
    columns: list[str]
    rows: list[list[Any]]
    brackets: list[BracketView]
    curves: Curves | None


class StoryEvent(Shape):
    """Why something happened. `subject`: experiment, trial or search; `trial` is null for the experiment's own."""

    id: int
    at: float
    trial: int | None
    subject: str
    event: str
    before: str
    after: str
    why: str
    decisions: list[str]


class StoryAnswer(Shape):
    """Events in the order in which they happened; `more`: there are further ones behind the last."""

    events: list[StoryEvent]
    more: bool


class RankExit(Shape):
    rank: int
    node: str
    code: int | None
    text: str


class AttemptCheckpoint(Shape):
    uuid: str
    at: float
    steps: int
    size: int
    state: str


class Attempt(Shape):
    """One job of a trial: when it was asked for, went to the scheduler, began and ended (null: not yet), until when it
    may run (`ends_at`), what it waits for (`waits`), when the scheduler expects to start it (`expected_start`; such
    estimates were off by `expected_error` seconds in this pool lately), how it ended. `trained_from`, `trained_to`:
    its first and last step that count; `lost_steps`: steps that a later attempt had to do again."""

    id: str
    attempt: int
    state: str
    created: float
    submitted: float | None
    started: float | None
    ended: float | None
    ends_at: float | None
    expected_start: float | None
    expected_error: float | None
    waits: str
    job: str | None
    cluster: str
    pool: str
    slots: int
    nodes: list[str]
    outcome: str | None
    how: str
    preempt_reason: str | None
    preempted_at: float | None
    exits: list[RankExit]
    checkpoints: list[AttemptCheckpoint]
    trained_from: int | None
    trained_to: int | None
    lost_steps: int
    slot_seconds: float


class AttemptsAnswer(Shape):
    attempts: list[Attempt]


class TrialHead(Shape):
    """What stands above every tab of a trial. `why`: its state in one sentence. `stop`: who stopped it, such as
    `searcher`. `search_pause`: paused, by the search and not by a person; resumed by it, until its next job; or empty.
    `parent`: the trial whose checkpoint the search began it from; `copies`: those that began from its own.
    `refused_reports`: how many reports the master refused for good."""

    id: int
    experiment_id: int
    experiment: str
    task_id: str
    state: str
    why: str
    stop: str | None
    search_pause: str
    parent: int | None
    copies: list[int]
    user: str
    user_id: int
    workspace_id: int
    unmanaged: bool
    metric: str
    smaller_is_better: bool
    hparams: dict[str, Any]
    best: float | str | None
    best_steps: int | None
    best_checkpoint: str | None
    steps: int
    progress: float
    restarts: int
    max_restarts: int
    started: float
    ended: float | None
    slot_seconds: float
    checkpoints: int
    checkpoint_size: int
    refused_reports: int


class LogLine(Shape):
    """`level` is a word such as ERROR; `text` is one line without its break."""

    id: int
    at: float
    level: str
    rank: int | None
    node: str | None
    attempt: int | None
    stream: str | None
    text: str


class TrialCurve(Shape):
    group: str
    metric: str
    x: list[float]
    y: list[float]


class TrialBoard(Shape):
    """All of a trial that its page shows first. `curve`: the searcher's metric over steps. `log`: its last lines."""

    trial: TrialHead
    attempts: list[Attempt]
    metrics: list[MetricName]
    curve: TrialCurve | None
    log: list[LogLine]


class TrialCurves(Shape):
    """Each metric of a trial over its own steps."""

    x_name: str
    curves: list[TrialCurve]


class HomeExperiment(Shape):
    """An experiment on the first page. `slots`: of each trial. `why`: one sentence; `since`: when it began to wait,
    else began or ended; `recent`: values of its best trial, the newest last; `failed_trial`: the first one that failed;
    `eta`: when it has ended at its present speed."""

    id: int
    name: str
    state: str
    why: str
    user: str
    user_id: int
    workspace_id: int
    job_id: str
    pool: str
    slots: int
    since: float
    progress: float
    metric: str
    smaller_is_better: bool
    best: float | str | None
    best_trial: int | None
    recent: list[float]
    trials: int
    running: int
    waiting: int
    slots_used: int
    slot_seconds: float
    expected_start: float | None
    expected_error: float | None
    failed_trial: int | None
    eta: float | None


class HomeTask(Shape):
    id: str
    kind: str
    name: str
    state: str
    ready: bool
    why: str
    since: float
    address: str | None


class HomePool(Shape):
    """`rests`: why nothing is submitted to it, empty where it works."""

    name: str
    cluster: str
    slots: int
    used: int
    waiting: int
    rests: str
    accelerator: str


class HomeAnswer(Shape):
    """What its user needs to know. `needs`: ended badly in the last seven days and not looked at, or cannot go on;
    `runs` and `waits`: theirs. `others`: experiments of others that run. `at`: when it was read."""

    at: float
    needs: list[HomeExperiment]
    runs: list[HomeExperiment]
    waits: list[HomeExperiment]
    done: list[HomeExperiment]
    tasks: list[HomeTask]
    pools: list[HomePool]
    total: int
    others: int


class GitView(Shape):
    """A commit and what was changed since. `branch` is empty for a detached head; `diff` is what `git apply` takes,
    with masks for secrets, and `diff_cut` says that there was more; `changed_lines` of the diff; `untracked`: files
    beside the code that are in no commit."""

    commit: str
    committer: str
    committed: str
    branch: str
    remote: str
    untracked: int
    diff: str
    diff_cut: bool
    changed_lines: int


class GitAnswer(Shape):
    """`git` is null for an experiment whose code came from no repository."""

    git: GitView | None
