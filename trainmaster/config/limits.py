"""Models the `limits` section: maximum sizes and rates of users, requests, configurations, searches and jobs.

Services have the limits in their settings, sessions in `info`, requests in their context. The client uses DEFAULTS.

The defaults are larger than ordinary work needs. The error for a limit is made by `excess`: it names the amount, what
is allowed, and the key that an administrator can raise."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from trainmaster.config.shapes import Section, Whole, wrong

_Count = Annotated[Whole, Field(ge=1, le=2**31 - 1)]
_Megabytes = Annotated[Whole, Field(ge=1, le=4096)]
_Seconds = Annotated[Whole, Field(ge=1, le=86_400)]


class Limits(Section):
    """All limits. Sizes are in MB of 2**20 bytes, times in seconds."""

    context: Annotated[Whole, Field(ge=1, le=2048)] = 95
    """The files of one experiment, before they are compressed."""
    request: _Megabytes | None = None
    """The body of any request; None: as much as the largest context needs."""

    request_values: _Count = 1_000_000
    """Values in the JSON of a request: about as many as it has commas and brackets."""

    config: Annotated[Whole, Field(ge=1, le=64)] = 1
    """The text of a configuration, a template or a policy."""
    config_values: _Count = 50_000
    """Values in a configuration, after anchors and merge keys are expanded."""
    hyperparameters: _Count = 2_000
    """Names in one hyperparameter space."""
    grid_axis: _Count = 10_000
    """Values of one hyperparameter in a grid."""
    trials: _Count = 100_000
    """Trials of one search: `max_trials`, the points of a grid."""
    trials_at_once: _Count = 10_000
    """Trials of one search that run, or wait for resources, at the same time."""
    experiments: _Count = 20_000
    """Experiments of one user that have not ended."""
    tasks: _Count = 1_000
    """Commands, notebooks, shells, TensorBoards and generic tasks of one user that have not ended."""
    things: _Count = 2_000
    """Templates, models, workspaces, projects or tokens of one user, webhooks of one workspace; for each kind."""

    metric_names: _Count = 2_000
    """Names of metrics in one group of a trial."""
    metric_groups: _Count = 200
    """Groups of metrics of a trial."""
    metric_name: _Count = 1_000
    """Characters in the name of a metric or group."""
    report_values: _Count = 100_000
    """Values in one report of metrics, those of its batches included."""
    depth: Annotated[Whole, Field(ge=1, le=200)] = 30
    """Lists and objects inside each other in reports, metadata and the like."""

    conditions: _Count = 500
    """Conditions of a filter, columns of a sort or of a list."""
    ids: _Count = 20_000
    """Ids in one request."""
    name: _Count = 1_000
    """Characters of a name or a label."""
    text: _Count = 2_000_000
    """Characters of a description or a note."""
    labels: _Count = 500
    """Labels of one experiment, model or version."""
    metadata: _Megabytes = 4
    """Metadata of a run, a checkpoint or a model, as JSON."""
    pattern: _Count = 1_000
    """Characters of a regular expression."""
    value: Annotated[Whole, Field(ge=1, le=65_536)] = 256
    """KB of JSON in a field of a request that has no limit of its own."""
    checkpoint_files: _Count = 500_000
    """Files of one checkpoint."""

    job_entry: Annotated[Whole, Field(ge=1, le=65_536)] = 16
    """KB that a process of a job says at a barrier, or of the devices of a container."""
    job_entries: _Count = 100_000
    """Such entries of one attempt, and streams of its reports."""
    job_state: _Megabytes = 16
    """All entries of one attempt; for barriers and for devices."""

    statement: _Seconds = 30
    """Seconds that one database statement of a request may take."""
    share: Annotated[Whole, Field(ge=1, le=64)] = 4
    """Requests of one user that are processed at the same time; others wait."""
    searches: Annotated[Whole, Field(ge=1, le=64)] = 2
    """Searches in logs of one user that are processed at the same time."""
    waiting: _Count = 200
    """Requests of one user that may wait; more are refused."""

    stream_period: _Seconds = 1
    """Seconds between two reads of a stream of metrics, at least: what `periodSeconds` may ask for."""

    connections: _Count = 40_000
    """Open connections to the master; at most four fifths of the file descriptors that it may open."""
    connection_rate: _Count = 500
    """New connections a second from one address; half as many from all addresses together at which nobody has logged in
    lately. Five seconds' worth may come at once. Trusted proxies have no such limit."""
    anonymous_connections: _Count = 512
    """Connections from one address on which no request has named its user yet."""
    user_connections: _Count = 1_000
    """Connections of one user; beyond them the user's idle ones are closed. Those of jobs are not counted."""
    live_connections: _Count = 100
    """WebSockets of one user over which pages get their updates: one for each open tab."""
    header: _Seconds = 30
    """Seconds until the head of a request must have arrived."""
    body: _Seconds = 60
    """Seconds in which 64 KB of a body, or its rest, must arrive."""

    spool: Annotated[Whole, Field(ge=1, le=2**20)] = 1024
    """Size of the spool that a job may leave in its folder for the master to read after its end."""
    spool_records: _Count = 5_000_000
    """Records in the spool."""
    spool_unreadable: _Count = 1_000
    """Lines in the spool that are not records."""
    job_rate: Annotated[Whole, Field(ge=1, le=4096)] = 32
    """MB per second that one job may report; more has to wait."""

    @property
    def request_mb(self) -> int:
        """`request`, or if it is not set, computed from `context`: files are sent in base64, each with path and
        date."""
        return self.request if self.request is not None else self.context * 4 // 3 + 33

    @model_validator(mode="after")
    def _room(self) -> Self:
        least = self.context * 4 // 3 + 1
        if self.request is not None and self.request < least:
            raise wrong(f"must be at least {least}, which {self.context} MB of files need when sent", "request")
        return self

    def excess(self, key: str, what: str, size: int | str) -> str:
        """Return the error for exceeding the limit `key`. `what` is a clause with braces for the number, such as "The
        grid has {} points"."""
        return (
            f"{what.format(size)}; at most {getattr(self, key)} are allowed. Use less, or ask the administrator for a "
            f"larger limits.{key}."
        )

    def over(self, key: str, size: int, what: str) -> str | None:
        """Return the error of `excess` if `size` is more than the key allows, else None."""
        return self.excess(key, what, size) if size > getattr(self, key) else None


DEFAULTS = Limits()
