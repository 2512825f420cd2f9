"""Endpoints for unmanaged experiments and trials, which run outside of this master."""

from __future__ import annotations

from urllib.parse import unquote

from fastapi import APIRouter, Request
from pydantic import Field

from trainmaster.config.secrets import masked
from trainmaster.master.api.experiments import CreateAnswer, CreateRequest, request_of
from trainmaster.master.api.schemas.entities import Experiment
from trainmaster.master.api.trials import TrialAnswer, answer_of
from trainmaster.master.http.dependencies import ServedMaster, UserCaller, UsesMaster
from trainmaster.master.http.messages import Body
from trainmaster.master.http.parameters import words
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.experiments import unmanaged
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["unmanaged"])
STATES = (*unmanaged.RUNNING, "COMPLETED", "CANCELED", "ERROR")


class CreateTrial(Body):
    experiment_id: int = Field(ge=1, lt=2**31)
    hparams: Json = {}  # noqa: RUF012
    unmanaged: bool = True


class PutTrial(Body):
    create_trial_request: CreateTrial
    external_trial_id: str = Field(min_length=1, max_length=500)


class StartTrial(Body):
    trial_id: int
    resume: bool = False


class PatchTrial(Body):
    trial_id: int
    state: str | None = None


def created(master: ServedMaster, caller: UserCaller, body: CreateRequest, external_id: str | None) -> CreateAnswer:
    request = request_of(body)
    number, _ = master.unmanaged.create_experiment(caller, request, external_id)
    view = master.experiments.get(number)
    return CreateAnswer(experiment=Experiment.of(view), config=masked(view.row.config.to_json()))


@router.put("/experiments/by-external-id/{external_experiment_id:path}")
def put_experiment(
    external_experiment_id: str, body: CreateRequest, master: UsesMaster, caller: UserCaller
) -> CreateAnswer:
    """Return the experiment of this external id, created if there is none."""
    if not body.unmanaged:
        raise Invalid("Only unmanaged experiments go by a name of their own; set unmanaged.")
    return created(master, caller, body, external_experiment_id)


@router.post("/trials")
def create_trial(body: CreateTrial, master: UsesMaster, caller: UserCaller) -> TrialAnswer:
    return _made(master, caller, body, None)


@router.put("/trials")
def put_trial(body: PutTrial, master: UsesMaster, caller: UserCaller) -> TrialAnswer:
    """Return the trial of this external id, created if there is none."""
    return _made(master, caller, body.create_trial_request, body.external_trial_id)


def _made(master: ServedMaster, caller: UserCaller, body: CreateTrial, external_id: str | None) -> TrialAnswer:
    if not body.unmanaged:
        raise Invalid("Trials of experiments that this master runs are made by their searcher; set unmanaged.")
    request = unmanaged.TrialRequest(body.experiment_id, body.hparams, external_id)
    return answer_of(master, master.unmanaged.create_trial(caller, request))


@router.get("/trials/by-external-id/{external_experiment_id:path}/{external_trial_id:path}")
def by_external_id(
    request: Request, external_experiment_id: str, external_trial_id: str, master: UsesMaster, caller: UserCaller
) -> TrialAnswer:
    # An id may have slashes: only the path as it was sent shows where the first one ends.
    raw: bytes = request.scope.get("raw_path") or b""
    if len(ends := raw.split(b"/")[-2:]) == 2:
        external_experiment_id, external_trial_id = (unquote(end.decode("latin-1")) for end in ends)
    trial = master.unmanaged.find_trial(caller, external_experiment_id, external_trial_id)
    return answer_of(master, trial)


@router.post("/trials/{trial_id}/start")
def start(trial_id: int, body: StartTrial, master: UsesMaster, caller: UserCaller) -> Json:
    """Start a new run, from the latest checkpoint."""
    begun = master.unmanaged.start(caller, trial_id, resume=body.resume)
    return {
        "trialRunId": begun.run_id,
        "latestCheckpoint": begun.latest_checkpoint,
        "stepsCompleted": begun.steps_completed,
    }


@router.patch("/trials/{trial_id}")
def patch(trial_id: int, body: PatchTrial, master: UsesMaster, caller: UserCaller) -> TrialAnswer:
    """Take in a heartbeat, or a change of state."""
    state = next(iter(words([body.state], "STATE_", STATES)), None) if body.state else None
    master.unmanaged.say(caller, trial_id, state)
    return answer_of(master, trial_id)
