"""What the web page's calls answer, as immutable objects. Times are seconds since 1970.

Written by `scripts/generate` from the OpenAPI document that the master serves; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HomeExperiment:
    """An experiment on the first page. `slots`: of each trial. `why`: one sentence; `since`: when it began to wait,
    else began or ended; `recent`: values of its best trial, the newest last; `failed_trial`: the first one that
    failed; `eta`: when it has ended at its present speed."""

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
    recent: tuple[float, ...]
    trials: int
    running: int
    waiting: int
    slots_used: int
    slot_seconds: float
    expected_start: float | None
    expected_error: float | None
    failed_trial: int | None
    eta: float | None


@dataclass(frozen=True)
class HomeTask:
    id: str
    kind: str
    name: str
    state: str
    ready: bool
    why: str
    since: float
    address: str | None


@dataclass(frozen=True)
class HomePool:
    """`rests`: why nothing is submitted to it, empty where it works."""

    name: str
    cluster: str
    slots: int
    used: int
    waiting: int
    rests: str
    accelerator: str


@dataclass(frozen=True)
class HomeView:
    """What its user needs to know. `needs`: ended badly in the last seven days and not looked at, or cannot go on;
    `runs` and `waits`: theirs. `others`: experiments of others that run. `at`: when it was read."""

    at: float
    needs: tuple[HomeExperiment, ...]
    runs: tuple[HomeExperiment, ...]
    waits: tuple[HomeExperiment, ...]
    done: tuple[HomeExperiment, ...]
    tasks: tuple[HomeTask, ...]
    pools: tuple[HomePool, ...]
    total: int
    others: int


@dataclass(frozen=True)
class ExperimentHead:
    """What stands above every tab of an experiment. `state` has the phases of active ones (RUNNING, QUEUED, ...);
    `why` is one sentence on it. `time_metric`: units of `max_time`. `planned`: it has a budget of slot-hours or a
    deadline, and so a plan. `slot_seconds`: what its jobs have used. `seconds_saved`: slot-seconds that its stopped
    trials would have used further, at their own speed, had they trained to `max_time`; None where nothing is stopped
    early."""

    id: int
    name: str
    state: str
    why: str
    description: str
    notes: str
    labels: tuple[str, ...]
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
    counts: Mapping[str, int]
    best: float | str | None
    best_trial: int | None
    checkpoints: int
    checkpoint_size: int
    slot_seconds: float
    seconds_saved: float | None


@dataclass(frozen=True)
class MetricName:
    group: str
    name: str


@dataclass(frozen=True)
class RungView:
    """A rung of a bracket. `units`: how far a trial trains before it is compared here. `trials` reached it, the best
    first, with their `values`; None: it failed here. `cut`: the worst value that goes on now. `stopped`: how many
    were stopped here; `paused`: how many wait here."""

    units: int
    trials: tuple[int, ...]
    values: tuple[float | None, ...]
    cut: float | None
    stopped: int
    paused: int


@dataclass(frozen=True)
class BracketView:
    rungs: tuple[RungView, ...]
    trials: int
    running: int


@dataclass(frozen=True)
class Curves:
    """Series over one grid `x` of `x_name` (batches, seconds, or a reported metric). `y` has a row for each of
    `trials`, up to its last value; None where a trial reported nothing near. `last`: where each series ends.
    `pauses`: where the search paused each. `seq`: give it as `since` to get only trials that have reported more.
    `whole`: all trials are here, not only those that changed."""

    group: str
    metric: str
    x_name: str
    x: tuple[float, ...]
    trials: tuple[int, ...]
    y: tuple[tuple[float | None, ...], ...]
    last: tuple[float | None, ...]
    pauses: tuple[tuple[float, ...], ...]
    whole: bool
    seq: int


@dataclass(frozen=True)
class ExperimentBoard:
    """All of an experiment that its page shows first. `rows`: its trials, values in the order of `columns`.
    `hparams`: those that differ between trials, as columns `hp.NAME`; `constants`: the others. `hparam_types`: what
    the configuration says of each, as double, int, log, categorical or const. In the columns, `searchPause` is
    "paused" for a trial that waits for the search, `pauses` says how often it did, `parent` is the trial that it is a
    copy of, `unitsFrom` and `units` are where it began to report and how far it is."""

    experiment: ExperimentHead
    metrics: tuple[MetricName, ...]
    hparams: tuple[str, ...]
    hparam_types: Mapping[str, str]
    constants: Mapping[str, Any]
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    brackets: tuple[BracketView, ...]
    curves: Curves | None


@dataclass(frozen=True)
class ExperimentEvent:
    """Why something happened. `subject`: experiment, trial or search; `trial` is None for the experiment's own."""

    id: int
    at: float
    trial: int | None
    subject: str
    event: str
    before: str
    after: str
    why: str
    decisions: tuple[str, ...]


@dataclass(frozen=True)
class RaceBracket:
    """`units`: of each rung, the lowest first: how far a trial trains before it is compared there. `running`: trials
    that train and were not stopped. `pauses`: those that do not continue from a rung wait on it."""

    units: tuple[int, ...]
    trials: int
    running: int
    pauses: bool


@dataclass(frozen=True)
class RungRace:
    """Who reached which rung, in order. `rows`: events, values in the order of `columns`, the first of them number
    `first` of `total` (from 1). `at`: seconds since 1970; `bracket` and `rung`: from 0; `value`: None for a trial
    that failed; `decision`: goes on, stopped, paused, top (the top rung, where all are done) or failed, and later, of
    a trial that was paused on the rung, resumed or stopped; `rank` among the `of` trials that had reached the rung by
    then, of which the best `keep` went on; `cut`: the worst value that went on then; `story`: the id of the decision
    in the story of the experiment."""

    metric: str
    smaller_is_better: bool
    time_metric: str
    brackets: tuple[RaceBracket, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    first: int
    total: int


@dataclass(frozen=True)
class CheckpointTable:
    """`rows`: values in the order of `columns`, the newest first; times are seconds since 1970."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class TrialHead:
    """What stands above every tab of a trial. `why`: its state in one sentence. `stop`: who stopped it, such as
    `searcher`. `search_pause`: paused, by the search and not by a person; resumed by it, until its next job; or
    empty. `parent`: the trial whose checkpoint the search began it from; `copies`: those that began from its own.
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
    copies: tuple[int, ...]
    user: str
    user_id: int
    workspace_id: int
    unmanaged: bool
    metric: str
    smaller_is_better: bool
    hparams: Mapping[str, Any]
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


@dataclass(frozen=True)
class RankExit:
    rank: int
    node: str
    code: int | None
    text: str


@dataclass(frozen=True)
class AttemptCheckpoint:
    uuid: str
    at: float
    steps: int
    size: int
    state: str


@dataclass(frozen=True)
class Attempt:
    """One job of a trial: when it was asked for, went to the scheduler, began and ended (None: not yet), until when
    it may run (`ends_at`), what it waits for (`waits`), when the scheduler expects to start it (`expected_start`;
    such estimates were off by `expected_error` seconds in this pool lately), how it ended. `trained_from`,
    `trained_to`: its first and last step that count; `lost_steps`: steps that a later attempt had to do again."""

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
    nodes: tuple[str, ...]
    outcome: str | None
    how: str
    preempt_reason: str | None
    preempted_at: float | None
    exits: tuple[RankExit, ...]
    checkpoints: tuple[AttemptCheckpoint, ...]
    trained_from: int | None
    trained_to: int | None
    lost_steps: int
    slot_seconds: float


@dataclass(frozen=True)
class TrialCurve:
    group: str
    metric: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class BoardLogLine:
    """`level` is a word such as ERROR; `text` is one line without its break."""

    id: int
    at: float
    level: str
    rank: int | None
    node: str | None
    attempt: int | None
    stream: str | None
    text: str


@dataclass(frozen=True)
class TrialBoard:
    """All of a trial that its page shows first. `curve`: the searcher's metric over steps. `log`: its last lines."""

    trial: TrialHead
    attempts: tuple[Attempt, ...]
    metrics: tuple[MetricName, ...]
    curve: TrialCurve | None
    log: tuple[BoardLogLine, ...]


@dataclass(frozen=True)
class TrialCurves:
    """Each metric of a trial over its own steps."""

    x_name: str
    curves: tuple[TrialCurve, ...]


@dataclass(frozen=True)
class MachineSeries:
    """Measurements of a node, or of one of its GPUs (`gpu`, else empty); `at`: seconds since 1970."""

    name: str
    node: str
    gpu: str
    at: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class MachineView:
    """The first MOST_SERIES series of `total`."""

    series: tuple[MachineSeries, ...]
    total: int


@dataclass(frozen=True)
class ComparedThing:
    """A trial or an experiment. `trial`: whose curve is shown: itself, or the best one of an experiment. `best`,
    `last`, `at_budget`: of the compared metric; `end`: where its curve ends. `queue_seconds`: how long its jobs have
    waited."""

    id: int
    experiment: int
    name: str
    trial: int | None
    state: str
    why: str
    user: str
    workspace_id: int
    started: float
    ended: float | None
    best: float | str | None
    last: float | str | None
    at_budget: float | str | None
    end: float | None
    steps: int
    trials: int
    attempts: int
    restarts: int
    slot_seconds: float
    queue_seconds: float
    pool: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class MissingThing:
    id: int
    why: str


@dataclass(frozen=True)
class ComparedSetting:
    """A setting of `part` hyperparameters, code, environment or configuration. `values`: one for each thing, or a
    single one that all have; None for what a thing does not have."""

    part: str
    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Comparison:
    """`kind`: trials or experiments. `missing`: what was asked for and cannot be shown. `budget`: the furthest place
    on `x_name` that all curves reach. `settings`: those that differ first; `settings_left_out`: how many are not
    here."""

    kind: str
    things: tuple[ComparedThing, ...]
    missing: tuple[MissingThing, ...]
    group: str
    metric: str
    smaller_is_better: bool
    x_name: str
    budget: float | None
    curves: Curves | None
    metrics: tuple[MetricName, ...]
    settings: tuple[ComparedSetting, ...]
    settings_left_out: int


@dataclass(frozen=True)
class UsageDay:
    """`day`: its first second in UTC, as seconds since 1970."""

    day: float
    slot_seconds: float


@dataclass(frozen=True)
class UsageShare:
    name: str
    slot_seconds: float


@dataclass(frozen=True)
class NodeTrouble:
    """Jobs that a node lost in the last seven days, and of how many trials; `at`, `why` and `trial` are of the
    last."""

    node: str
    cluster: str
    jobs: int
    trials: int
    at: float
    why: str
    trial: int


@dataclass(frozen=True)
class UsageView:
    """Slot-seconds of the days from `first` to `last` (YYYY-MM-DD, UTC, both included), the largest shares first."""

    first: str
    last: str
    slot_seconds: float
    days: tuple[UsageDay, ...]
    users: tuple[UsageShare, ...]
    pools: tuple[UsageShare, ...]
    labels: tuple[UsageShare, ...]
    nodes: tuple[NodeTrouble, ...]


@dataclass(frozen=True)
class StorageShare:
    """`size` in bytes. `owner` and `workspace` are of an experiment."""

    id: int
    name: str
    owner: str
    workspace: str
    checkpoints: int
    size: int


@dataclass(frozen=True)
class StorageUsage:
    """The largest shares first, and the site's own storage; `free` and `total` are bytes, None where nobody says
    it."""

    shares: tuple[StorageShare, ...]
    place: str
    free: int | None
    total: int | None


@dataclass(frozen=True)
class GitView:
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


@dataclass(frozen=True)
class GitAnswer:
    """`git` is None for an experiment whose code came from no repository."""

    git: GitView | None


@dataclass(frozen=True)
class TrainingOrigin:
    """The experiment and the trial that wrote the checkpoint. `config` has masks for secrets; `images`: by kind of
    slot; `image_digests`: which content they had, as the jobs found it; `data`: folders of the cluster that the jobs
    saw, and what they copied; `jobs`: of the trial, as `cluster:number`; `created`: seconds since 1970."""

    experiment: int
    experiment_name: str
    owner: str
    created: float
    trial: int
    hparams: Mapping[str, Any]
    seed: int
    parent: int | None
    metric_name: str
    smaller_is_better: bool
    config: Mapping[str, Any]
    git: GitView | None
    images: Mapping[str, str]
    image_digests: tuple[str, ...]
    data: tuple[str, ...]
    jobs: tuple[str, ...]


@dataclass(frozen=True)
class VersionOrigin:
    """`metric`: the searcher's, at the checkpoint's `steps`; `saved`: seconds since 1970; `training` is None where
    there is none that the caller may see."""

    checkpoint: str
    steps: int
    saved: float
    size: int
    metric: float | str | None
    validation: Mapping[str, Any]
    metadata: Mapping[str, Any]
    training: TrainingOrigin | None


@dataclass(frozen=True)
class PlanBudget:
    """What the searcher's section limits. `deadline`: ISO 8601."""

    max_trials: int | None
    slot_hours: float | None
    deadline: str | None


@dataclass(frozen=True)
class PlanUse:
    """What is used so far."""

    trials: int
    slot_hours: float


@dataclass(frozen=True)
class PlanForecast:
    """How the search will end, if its trials continue at their pace; None: not known. `end`: ISO 8601."""

    trials: int | None
    slot_hours: float | None
    end: str | None


@dataclass(frozen=True)
class PlanWait:
    """`median`: seconds in the queue, of the last `jobs` of the pool."""

    median: float | None
    jobs: int


@dataclass(frozen=True)
class SearchPlanAnswer:
    """`unit_seconds`: mean seconds of a unit of the time metric. `sentences`: the same in words."""

    budget: PlanBudget
    used: PlanUse
    forecast: PlanForecast
    wait: PlanWait
    unit_seconds: float | None
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class SearchRun:
    """`bests`: seconds since the start and value of each improvement; `spent`: for each the slot-seconds used by
    then, empty where that is not known; `lengths`: units trained, and how many trials."""

    bests: tuple[tuple[float, ...], ...]
    spent: tuple[float, ...]
    seconds: float
    slot_seconds: float
    trials: int
    lengths: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SearchCourse:
    """The best value over time, at `seconds` since the start: median and quartiles of the simulations; None while too
    few of them have a value."""

    seconds: tuple[float, ...]
    lower: tuple[float | None, ...]
    median: tuple[float | None, ...]
    upper: tuple[float | None, ...]


@dataclass(frozen=True)
class SearchSimulation:
    """`recorded`: what the experiment itself did; None for a table. `trials`: recorded ones with values; `short`:
    those of them that the search stopped, of which nothing more is known. `runs`: one a seed."""

    metric: str
    smaller_is_better: bool
    time_metric: str
    searcher: str
    workers: int
    recorded: SearchRun | None
    trials: int
    short: int
    runs: tuple[SearchRun, ...]
    course: SearchCourse
