"""Validates the exit record of a node's runtime, which may come from a file that a user could write."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from trainmaster.master.services.errors import Invalid

# Characters that PostgreSQL cannot store, that move a terminal's cursor, or that change the direction of writing.
_UNFIT = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST_TEXT = 4000  # characters
MOST_STREAMS = 1000  # of one node


def _fit(text: str) -> str:
    return _UNFIT.sub("\ufffd", text[:LONGEST_TEXT])


Text = Annotated[str, AfterValidator(_fit)]
Stream = Annotated[str, Field(max_length=64), AfterValidator(_fit)]
Moment = Annotated[float, Field(ge=0, lt=1e11, allow_inf_nan=False)]


class _Preempted(BaseModel):
    reason: Text


class _Record(BaseModel):
    """The keys of an exit record (docs/architecture/in-job-protocol.md); others are dropped."""

    model_config = ConfigDict(extra="ignore")

    allocation_id: Text = ""
    job_id: Text = ""
    node_rank: int = Field(default=0, ge=0, lt=1_000_000)
    node_name: Text = ""
    exit_code: int = Field(ge=-255, le=255)
    signal: int | None = Field(default=None, ge=1, le=64)
    oom: bool = False
    preempted: _Preempted | None = None
    preempt_acked: bool = False
    began: bool = True
    message: Text = ""
    started_at: Moment | None = None
    ended_at: Moment | None = None
    evidence: Text = ""
    failed_rank: int | None = Field(default=None, ge=0, lt=1_000_000)
    failed_at: Moment | None = None
    fault: Text = ""
    spool: dict[Stream, Annotated[int, Field(ge=0, lt=2**53)]] = Field(default_factory=dict, max_length=MOST_STREAMS)


def checked(record: object) -> dict[str, Any]:
    """Return a validated copy of `record`, safe to store and to decide on. Raises Invalid with what does not fit."""
    try:
        return _Record.model_validate(record).model_dump()
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, f['loc'])) or 'it'}: {f['msg']}" for f in error.errors()[:3])
        raise Invalid(f"The exit record does not fit: {faults}.") from None
