"""The `limits` section: how much a user, a request, a configuration, a search or a job may bring.

Services find them in their settings; what has none (a text that is read, the shape of a request) asks `in_force`.

Every key has a default that honest work does not meet. Whoever meets one reads `excess`: what is too much, how much it
is, how much is allowed, and which key an administrator raises.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from .shapes import Section, Whole, wrong

_Count = Annotated[Whole, Field(ge=1, le=2**31 - 1)]
_Megabytes = Annotated[Whole, Field(ge=1, le=4096)]
_Seconds = Annotated[Whole, Field(ge=1, le=86_400)]


class Limits(Section):
    """Sizes are in MB of 2**20 bytes, times in seconds."""

    context: Annotated[Whole, Field(ge=1, le=2048)] = 95
    """The files of one experiment, before they are compressed."""
    request: _Megabytes | None = None
    """The body of any request; None: what takes the largest context."""

    request_values: _Count = 1_000_000
    """Values in the JSON of a request: about as many as it has commas and brackets."""

    config: Annotated[Whole, Field(ge=1, le=64)] = 1
    """The text of a configuration, a template or a policy."""
    config_values: _Count = 50_000
    """Values in one, counted with all that anchors and merge keys expand to."""
    hyperparameters: _Count = 2_000
    """Names in one hyperparameter space."""
    grid_axis: _Count = 10_000
    """Values that a grid takes for one hyperparameter."""
    trials: _Count = 100_000
    """Trials of one search: `max_trials`, the points of a grid."""
    trials_at_once: _Count = 10_000
    """Trials of one search that run, or wait for resources, at the same time."""
    experiments: _Count = 20_000
    """Experiments of one user that have not ended."""
    tasks: _Count = 1_000
    """Commands, notebooks, shells, TensorBoards and generic tasks of one user that have not ended."""
    things: _Count = 2_000
    """Templates, models, workspaces, projects or access tokens of one user, webhooks of one workspace: of each."""

    metric_names: _Count = 2_000
    """Names of metrics in one group of a trial."""
    metric_groups: _Count = 200
    """Groups of metrics of a trial."""
    metric_name: _Count = 1_000
    """Characters in such a name."""
    report_values: _Count = 100_000
    """Values in one report of metrics, those of its batches included."""
    depth: Annotated[Whole, Field(ge=1, le=200)] = 30
    """Lists and objects inside each other in reports, metadata and the like."""

    conditions: _Count = 500
    """Conditions of a filter, columns of a sort or of a list, parts of a column's path."""
    ids: _Count = 20_000
    """Things that one request names."""
    name: _Count = 1_000
    """Characters of a name or a label."""
    text: _Count = 2_000_000
    """Characters of a description or a note."""
    labels: _Count = 500
    """Labels of one thing."""
    metadata: _Megabytes = 4
    """Metadata of a run, a checkpoint or a model, as JSON."""
    pattern: _Count = 1_000
    """Characters of a regular expression."""

    statement: _Seconds = 30
    """How long the database may work on one statement of a request."""
    share: Annotated[Whole, Field(ge=1, le=64)] = 4
    """Requests of one user that are worked on at the same time; more of them wait for these."""
    searches: Annotated[Whole, Field(ge=1, le=64)] = 2
    """The same for searches in logs."""
    waiting: _Count = 200
    """Requests of one user that may wait so; more are refused."""

    connections: _Count = 8_000
    """Open connections to the master; also never more than four fifths of the descriptors that it may have."""
    anonymous_connections: _Count = 512
    """Connections from one address on which no request has named its user yet."""
    user_connections: _Count = 1_000
    """Connections of one user; beyond them the user's idle ones are closed. Those of jobs are not counted."""
    header: _Seconds = 30
    """Until the head of a request must be there."""
    body: _Seconds = 60
    """In which a body must bring 64 KB, or its rest."""

    spool: Annotated[Whole, Field(ge=1, le=2**20)] = 1024
    """What a job may leave in its folder for the master to read after its end."""
    spool_records: _Count = 5_000_000
    """Records in it."""
    spool_unreadable: _Count = 1_000
    """Lines in it that are no records."""
    job_rate: Annotated[Whole, Field(ge=1, le=4096)] = 32
    """MB a second that one job may report; more waits for its turn."""

    @property
    def request_mb(self) -> int:
        """`request`, worked out where nobody says it: files travel in base64, each with its path and date."""
        return self.request if self.request is not None else self.context * 4 // 3 + 33

    @model_validator(mode="after")
    def _room(self) -> Self:
        least = self.context * 4 // 3 + 1
        if self.request is not None and self.request < least:
            raise wrong(f"must be at least {least}, which {self.context} MB of files take on their way", "request")
        return self

    def excess(self, key: str, what: str, found: int | str) -> str:
        """What is wrong with `found` of something, as a sentence. `what`: "The grid has {} points", with braces where
        the number goes."""
        return (
            f"{what.format(found)}; at most {getattr(self, key)} are allowed. Use less, or ask the administrator for a "
            f"larger limits.{key}."
        )

    def over(self, key: str, found: int, what: str) -> str | None:
        """The sentence of `excess` where `found` is more than the key allows."""
        return self.excess(key, what, found) if found > getattr(self, key) else None


_in_force = [Limits()]


def in_force() -> Limits:
    """Of this process: a master's own, elsewhere the defaults."""
    return _in_force[0]


def enforce(limits: Limits) -> None:
    """Make them those of this process."""
    _in_force[0] = limits
