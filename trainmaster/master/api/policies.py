"""Endpoints for configuration policies and the maintenance message."""

from __future__ import annotations

import datetime as dt
import re

from fastapi import APIRouter
from pydantic import AwareDatetime, field_validator

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, precise
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.organisation import site_policies
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["policies"])


class PutPolicies(Body):
    config_policies: str  # YAML
    workload_type: str = ""
    workspace_id: int = 0


@router.get("/config-policies/global/{workload_type}")
def get_global(workload_type: str, master: UsesMaster, caller: UserCaller) -> Json:
    return {"configPolicies": master.site_policies.get(workload_type, None)}


@router.put("/config-policies/global/{workload_type}")
def put_global(workload_type: str, body: PutPolicies, master: UsesMaster, caller: UserCaller) -> Json:
    return {"configPolicies": master.site_policies.put(caller, workload_type, None, body.config_policies)}


@router.delete("/config-policies/global/{workload_type}")
def delete_global(workload_type: str, master: UsesMaster, caller: UserCaller) -> Json:
    master.site_policies.remove(workload_type, None)
    return {}


@router.get("/config-policies/workspaces/{workspace_id}/{workload_type}")
def get(workspace_id: int, workload_type: str, master: UsesMaster, caller: UserCaller) -> Json:
    return {"configPolicies": master.site_policies.get(workload_type, workspace_id)}


@router.put("/config-policies/workspaces/{workspace_id}/{workload_type}")
def put(workspace_id: int, workload_type: str, body: PutPolicies, master: UsesMaster, caller: UserCaller) -> Json:
    policies = master.site_policies.put(caller, workload_type, workspace_id, body.config_policies)
    return {"configPolicies": policies}


@router.delete("/config-policies/workspaces/{workspace_id}/{workload_type}")
def delete(workspace_id: int, workload_type: str, master: UsesMaster, caller: UserCaller) -> Json:
    master.site_policies.remove(workload_type, workspace_id)
    return {}


# -- the banner ---------------------------------------------------------------------------------------------------

_DURATION = re.compile(r"(?:(\d{1,6})w)?(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")  # 2w, 1d, 2h30m


class PutMessage(Body):
    message: str
    start_time: AwareDatetime
    end_time: AwareDatetime | None = None
    duration: str | None = None

    @field_validator("duration")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        if value is not None and (not value or not _DURATION.fullmatch(value)):
            raise ValueError(f"{value!r} is not a duration; write for example 1d, 2h30m or 90s")
        return value


@router.get("/master/cluster_message")
def get_message(master: UsesMaster, caller: UserCaller) -> Json:
    """Return the message that is set, also before it is shown: for users who may set it. Everybody sees it in `GET
    /api/v1/master`."""
    return {"clusterMessage": shown_message(master.site_policies.message())}


@router.put("/master/cluster_message")
def put_message(body: PutMessage, master: UsesMaster, caller: UserCaller) -> Json:
    if body.end_time is not None and body.duration is not None:
        raise Invalid("Give either the message's end or its duration, not both.")
    end = body.end_time
    if body.duration is not None:
        parts = _DURATION.fullmatch(body.duration)
        assert parts
        weeks, days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
        try:
            end = body.start_time + dt.timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            raise Invalid(f"{body.duration!r} is too long: its end is beyond the last possible date.") from None
    master.site_policies.set_message(body.message, body.start_time, end)
    return {}


@router.delete("/master/cluster_message")
def delete_message(master: UsesMaster, caller: UserCaller) -> Json:
    master.site_policies.clear_message()
    return {}


def shown_message(message: site_policies.Message | None) -> Json | None:
    if message is None:
        return None
    shown = {"message": message.text, "startTime": precise(message.start), "createdTime": precise(message.created)}
    return shown | ({"endTime": precise(message.end)} if message.end else {})
