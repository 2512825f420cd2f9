"""Endpoints for metric series as plots need them, and for reading the files of an experiment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from trainmaster.master.api.schemas.entities import Trial
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import ServedMaster, UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, rfc3339
from trainmaster.master.http.parameters import METRIC_TYPES, words
from trainmaster.master.http.streams import line_of, period_of, with_errors
from trainmaster.master.http.waiting import NOTHING, waiting
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.clock import now
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.files import model_files
from trainmaster.master.services.metrics import profiler, series
from trainmaster.master.services.metrics.metric_reports import MAX_STEPS
from trainmaster.master.services.metrics.profiler import Series
from trainmaster.master.services.metrics.series import Named, Point, SeriesSection
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["metrics"])
CHECK_PERIOD = 2.0  # seconds between two reads for a client that follows the profiler

Steps = Annotated[int, Query(ge=0, le=MAX_STEPS)]
Count = Annotated[int, Query(ge=0, le=series.MOST_POINTS)]
Period = Annotated[float, Query(alias="periodSeconds", ge=0)]


def _group(group: str, metric_type: str) -> str:
    """Return the group, which older clients send as a type of metric."""
    groups = words([metric_type], "METRIC_TYPE_", METRIC_TYPES, enums.METRIC_TYPE) if metric_type else []
    return group or (groups[0].lower() if groups else "")


def _metric(
    metricName: str = "",
    group: str = "",
    metricType: str = "",
) -> Named:
    named = _group(group, metricType)
    if not named:
        raise Invalid("Name the metric's group, as group=validation.")
    return Named(named, metricName)


Metric = Annotated[Named, Depends(_metric)]


def _section(startBatches: Steps = 0, endBatches: Steps = 0, maxDatapoints: Count = 0) -> SeriesSection:
    return SeriesSection(startBatches, endBatches or MAX_STEPS, maxDatapoints)


_FILTER = "timeSeriesFilter."
_RANGE = _FILTER + "integerRange."


def _filtered(
    request: Request,
    section: Annotated[SeriesSection, Depends(_section)],
    name: Annotated[str, Query(alias=_FILTER + "name")] = "batches",
    gt: Annotated[int | None, Query(alias=_RANGE + "gt", ge=-1, le=MAX_STEPS)] = None,
    gte: Annotated[int | None, Query(alias=_RANGE + "gte", ge=0, le=MAX_STEPS)] = None,
    lt: Annotated[int | None, Query(alias=_RANGE + "lt", ge=0, le=MAX_STEPS)] = None,
    lte: Annotated[int | None, Query(alias=_RANGE + "lte", ge=0, le=MAX_STEPS)] = None,
) -> SeriesSection:
    """Return a filter of the series takes the place of `startBatches` and `endBatches`. Of Determined's filters there
    is the range of batches. Raises Invalid for others."""
    given = {key for key in request.query_params if key.startswith(_FILTER)}
    known = {_FILTER + "name", *(_RANGE + end for end in ("gt", "gte", "lt", "lte"))}
    if name != "batches" or given - known:
        wrong = min(given - known, default=_FILTER + "name")
        raise Invalid(f"{wrong}: a series is cut by batches only: give timeSeriesFilter.integerRange of batches.")
    if not given - {_FILTER + "name"}:
        return section
    first = max(0 if gt is None else gt + 1, 0 if gte is None else gte)
    last = min(MAX_STEPS if lt is None else lt - 1, MAX_STEPS if lte is None else lte)
    return SeriesSection(first, last, section.points)


Part = Annotated[SeriesSection, Depends(_section)]


@router.get("/experiments/{experiment_id}/metrics-stream/batches")
async def batches(
    experiment_id: int, master: UsesMaster, caller: UserCaller, metric: Metric, period: Period = 0.0
) -> StreamingResponse:
    """Stream the steps at which there is a value, then new ones, until the experiment has ended."""
    sent: set[int] = set()

    def look() -> tuple[Json | None, bool]:
        batches_of_metric, live = master.series.batches(experiment_id, metric)
        fresh = [steps for steps in batches_of_metric if steps not in sent]
        sent.update(fresh)
        return ({"batches": fresh} if fresh else None), live

    return _preceded_by({"batches": []}, await _looking(master, caller, look, period))


@router.get("/experiments/{experiment_id}/metrics-stream/trials-sample")
async def trials_sample(
    experiment_id: int,
    master: UsesMaster,
    caller: UserCaller,
    metric: Metric,
    section: Part,
    most: Annotated[int, Query(alias="maxTrials", ge=0, le=series.MOST_TRIALS)] = 0,
    period: Period = 0.0,
) -> StreamingResponse:
    """Stream the best trials until the experiment has ended: hyperparameters and the series of a trial that became
    one of them, later only its new points, as in Determined."""
    shown: dict[int, int] = {}  # trial -> the last step that was sent

    def look() -> tuple[Json | None, bool]:
        curves, live = master.series.sample(experiment_id, metric, section, most)
        trials = []
        for curve in curves:
            known = shown.get(curve.trial.id)
            points = [point for point in curve.points if known is None or point.steps > known]
            if known is None or points:
                hparams = curve.trial.hparams if known is None else None
                trials.append({"trialId": curve.trial.id, "hparams": hparams, "data": _data({metric.name: points})})
        ids = {one.trial.id for one in curves}
        promoted, demoted = sorted(ids - shown.keys()), sorted(shown.keys() - ids)
        last = {one.trial.id: max((point.steps for point in one.points), default=-1) for one in curves}
        shown.clear()
        shown.update(last)
        message = {"trials": trials, "promotedTrials": promoted, "demotedTrials": demoted}
        return (message if trials or demoted else None), live

    empty: Json = {"trials": [], "promotedTrials": [], "demotedTrials": []}
    return _preceded_by(empty, await _looking(master, caller, look, period))


@router.get("/experiments/{experiment_id}/metrics-stream/trials-snapshot")
async def trials_snapshot(
    experiment_id: int,
    master: UsesMaster,
    caller: UserCaller,
    metric: Metric,
    batchesProcessed: Steps = 0,
    batchesMargin: Steps = 0,
    period: Period = 0.0,
) -> StreamingResponse:
    """Stream each trial's metric at one number of steps, again when there is more, until the experiment has ended."""
    before: list[Json] = []

    def look() -> tuple[Json | None, bool]:
        points, live = master.series.snapshot(experiment_id, metric, batchesProcessed, batchesMargin)
        trials = [
            {
                "trialId": point.trial_id,
                "hparams": point.hparams,
                "metric": point.value,
                "batchesProcessed": point.steps,
            }
            for point in points
        ]
        message = {"trials": trials}
        if before == [message]:
            return None, live
        before[:] = [message]
        return (message if trials else None), live

    return _preceded_by({"trials": []}, await _looking(master, caller, look, period))


@router.get("/trials/time-series", response_class=JSONResponse)
def compare(
    master: UsesMaster,
    caller: UserCaller,
    section: Annotated[SeriesSection, Depends(_filtered)],
    trial_ids: Annotated[list[int], Query(alias="trialIds")] = [],  # noqa: B006
    names: Annotated[list[str], Query(alias="metricNames")] = [],  # noqa: B006
    ids: Annotated[list[str], Query(alias="metricIds")] = [],  # noqa: B006
    group: str = "",
    metricType: str = "",
) -> Response:
    """`metricIds` are GROUP.NAME; `metricNames` are names in `group`, or in both training and validation."""
    wanted = [Named(*_split(one)) for one in ids]
    groups = [_group(group, metricType)] if group or metricType else ["training", "validation"]
    wanted += [Named(one, name) for one in groups for name in names]
    curves = master.series.compare(caller, trial_ids, wanted, section)
    time = now()
    shown = [
        {
            "trial": Trial.of(row, now=time).model_dump(by_alias=True, mode="json"),
            "metrics": [_downsampled(name, points) for name, points in _by_group(measured).items()],
        }
        for row, measured in curves
    ]
    return JSONResponse({"trials": shown})  # FastAPI would go through thousands of points once more


def _split(metric_id: str) -> tuple[str, str]:
    group, dot, name = metric_id.partition(".")
    if not dot or not group or not name:
        raise Invalid(f"{metric_id!r} is not a metric; write GROUP.NAME, such as validation.loss.")
    return group, name


def _by_group(measured: Mapping[Named, Sequence[Point]]) -> dict[str, dict[str, Sequence[Point]]]:
    groups: dict[str, dict[str, Sequence[Point]]] = {}
    for metric, points in measured.items():
        groups.setdefault(metric.group, {})[metric.name] = points
    return groups


def _downsampled(group: str, measured: Mapping[str, Sequence[Point]]) -> Json:
    kind = group.upper() if group in ("training", "validation") else "UNSPECIFIED"
    return {"group": group, "type": f"METRIC_TYPE_{kind}", "data": _data(measured)}


def _data(measured: Mapping[str, Sequence[Point]]) -> list[Json]:
    """One entry for each number of steps, with the values of all metrics that have one there."""
    points_by_batches: dict[int, Json] = {}
    for name, points in measured.items():
        for point in points:
            entry = points_by_batches.setdefault(
                point.steps, {"batches": point.steps, "time": rfc3339(point.at), "epoch": point.epoch, "values": {}}
            )
            entry["values"][name] = point.value
    return [points_by_batches[steps] for steps in sorted(points_by_batches)]


def _preceded_by(message: Json, stream: StreamingResponse) -> StreamingResponse:
    """Begin a stream with an empty message, as Determined does: clients learn from it that the stream is open."""
    rest = stream.body_iterator

    async def body() -> AsyncIterator[Any]:
        yield line_of(message)
        async for line in rest:
            yield line

    return StreamingResponse(body(), media_type=stream.media_type)


async def _looking(
    master: ServedMaster, caller: Caller, look: Callable[[], tuple[Json | None, bool]], period: float
) -> StreamingResponse:
    """Return a message for each read that finds something new, until nothing can follow. The first read is made before
    the response begins, so that an error in the request gets its status."""

    def read() -> tuple[bytes, bool]:
        answer, more = look()
        return b"" if answer is None else line_of(answer), more

    period = period_of(master.settings.limits, period)
    line, live = await master.threads.run(caller, read)

    async def body() -> AsyncIterator[bytes]:
        answer, more = line, live
        with waiting(master.wakeups, NOTHING, period=period) as turn:
            while True:
                if answer:
                    yield answer
                if not more or not await turn.again():
                    return
                answer, more = await master.threads.run(caller, read)

    return StreamingResponse(with_errors(body()), media_type="application/json")


# -- files --------------------------------------------------------------------------------------------------------


class FileRequest(Body):
    path: str
    experiment_id: int | None = None


@router.get("/experiments/{experiment_id}/file_tree")
def file_tree(experiment_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    return {"files": [_node(node) for node in master.context_files.tree(experiment_id)]}


@router.post("/experiments/{experiment_id}/file")
def file(experiment_id: int, body: FileRequest, master: UsesMaster, caller: UserCaller) -> Json:
    """One file of the experiment's folder, in base64."""
    return {"file": master.context_files.content(experiment_id, body.path)}


def _node(node: model_files.FileNode) -> Json:
    return {
        "path": node.path,
        "name": node.path.rpartition("/")[2],
        "modifiedTime": rfc3339(node.modified),
        "contentLength": node.size,
        "isDir": node.folder,
        "contentType": node.media_type,
        "files": [_node(child) for child in node.children],
    }


# -- the profiler -------------------------------------------------------------------------------------------------


@router.get("/trials/{trial_id}/profiler/available_series")
async def profiler_series(
    trial_id: int, master: UsesMaster, caller: UserCaller, follow: bool = False
) -> StreamingResponse:
    """List the series of measurements; with `follow` again when there are more, until the trial has ended."""
    sent: list[Series] = []

    def look() -> tuple[Json | None, bool]:
        live = _lives(master, trial_id) and follow
        series = list(master.profiler.read(trial_id))
        if series == sent and sent:
            return None, live
        sent[:] = series
        return {"labels": [_labels(trial_id, curve) for curve in series]}, live

    return await _looking(master, caller, look, CHECK_PERIOD)


@router.get("/trials/{trial_id}/profiler/metrics")
async def profiler_metrics(
    trial_id: int,
    master: UsesMaster,
    caller: UserCaller,
    name: Annotated[str, Query(alias="labels.name")] = "",
    agent: Annotated[str, Query(alias="labels.agentId")] = "",
    gpu: Annotated[str, Query(alias="labels.gpuUuid")] = "",
    follow: bool = False,
) -> StreamingResponse:
    """Stream measurements of a trial's machines, a line for each series; with `follow` also new ones."""

    def fits(one: Series) -> bool:
        return name in ("", one.name) and agent in ("", one.agent) and gpu in ("", one.gpu)

    live = await master.threads.run(caller, _lives, master, trial_id)  # raises NotFound
    sent: dict[Series, int] = {}

    def read() -> list[bytes]:
        lines = []
        for one, measured in master.profiler.read(trial_id).items():
            first = sent.get(one, 0)
            if fits(one) and len(measured.values) > first:
                sent[one] = len(measured.values)
                lines.append(line_of({"batch": _batch(trial_id, one, measured, first)}))
        return lines

    async def body() -> AsyncIterator[bytes]:
        more = live
        with waiting(master.wakeups, NOTHING, period=CHECK_PERIOD) as turn:
            while True:
                for line in await master.threads.run(caller, read):
                    yield line
                if not (follow and more) or not await turn.again():
                    return
                more = await master.threads.run(caller, _lives, master, trial_id)

    return StreamingResponse(with_errors(body()), media_type="application/json")


def _lives(master: ServedMaster, trial_id: int) -> bool:
    return master.trials.get(trial_id)[0].end_time is None


def _labels(trial_id: int, one: Series) -> Json:
    return {
        "trialId": trial_id,
        "name": one.name,
        "agentId": one.agent,
        "gpuUuid": one.gpu,
        "metricType": "PROFILER_METRIC_TYPE_SYSTEM",
    }


def _batch(trial_id: int, one: Series, measured: profiler.Measured, first: int) -> Json:
    return {
        "labels": _labels(trial_id, one),
        "values": measured.values[first:],
        "batches": measured.steps[first:],
        "timestamps": [rfc3339(at) for at in measured.times[first:]],
    }
