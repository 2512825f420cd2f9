"""Client of this host's Docker engine: creates, lists, signals and removes the containers with this agent's labels."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import docker
import requests
from docker import errors

from trainmaster.agent.plan import ListedContainer
from trainmaster.agent_protocol.messages import Blame

LABEL_AGENT = "trainmaster.agent"
LABEL_TOKEN = "trainmaster.token"  # noqa: S105
LABEL_JOB = "trainmaster.job"
LABEL_RANK = "trainmaster.rank"
LABEL_NODES = "trainmaster.nodes"
LABEL_SLOTS = "trainmaster.slots"

DEADLINE = 60  # seconds of one request to the engine; pulls have their own
PULL_SILENCE = 600  # seconds without progress while an image is fetched
TAIL_LINES = 2000
TAIL_BYTES = 64 * 1024
EVENTS = ("die", "oom", "destroy", "start")


class EngineAway(Exception):
    """The engine does not answer; the message says how."""


class ContainerError(Exception):
    """A container cannot be created or started; the message is for the job's owner, `blame` names who can fix it."""

    def __init__(self, message: str, blame: Blame) -> None:
        super().__init__(message)
        self.blame = blame


class Engine:
    """The engine of this host. Thread-safe: each thread has its own connection. Every method raises EngineAway."""

    def __init__(self, agent_id: str, address: str | None = None) -> None:
        """`address`: URL of the daemon; None uses DOCKER_HOST or the default socket."""
        self._agent_id = agent_id
        self._address = address
        self._local = threading.local()
        self._inspected: dict[str, ListedContainer] = {}  # containers that have ended do not change any more

    def version(self) -> str:
        with _engine_errors():
            return str(self._api().version()["Version"])

    def facts(self) -> tuple[str, int]:
        """Return the folder of Docker's own data, and the host's memory in bytes."""
        with _engine_errors():
            info = self._api().info()
            return str(info["DockerRootDir"]), int(info["MemTotal"])

    def pid(self, container: str) -> int:
        """Return the host's process id of the container's first process; 0 when it has none."""
        with _engine_errors():
            try:
                return int(self._api().inspect_container(container)["State"]["Pid"] or 0)
            except errors.NotFound:
                return 0

    def containers(self) -> list[ListedContainer]:
        """List all containers of this agent, ended ones too."""
        with _engine_errors():
            listed = self._api().containers(all=True, filters={"label": f"{LABEL_AGENT}={self._agent_id}"})
        containers = []
        for entry in listed:
            if LABEL_TOKEN not in entry["Labels"]:
                continue
            inspected = self._inspected.get(entry["Id"])
            if inspected is None and (inspected := self._inspect(entry["Id"])) is None:
                continue
            if inspected.ended:
                self._inspected[entry["Id"]] = inspected
            containers.append(inspected)
        known = {entry["Id"] for entry in listed}
        self._inspected = {key: inspected for key, inspected in self._inspected.items() if key in known}
        return containers

    def _inspect(self, container: str) -> ListedContainer | None:
        """Inspect one container; None when it no longer exists."""
        with _engine_errors():
            try:
                facts = self._api().inspect_container(container)
            except errors.NotFound:
                return None
        labels, state = facts["Config"]["Labels"], facts["State"]
        return ListedContainer(
            id=facts["Id"],
            token=labels[LABEL_TOKEN],
            job_id=labels.get(LABEL_JOB, ""),
            node_rank=int(labels.get(LABEL_RANK, 0)),
            num_nodes=int(labels.get(LABEL_NODES, 1)),
            slot_ids=tuple(int(word) for word in labels.get(LABEL_SLOTS, "").split(",") if word),
            status=state["Status"],
            exit_code=state["ExitCode"] if state["Status"] in ("exited", "dead") else None,
            oom=bool(state["OOMKilled"]),
            error=str(state.get("Error") or ""),
            started_at=_epoch(state["StartedAt"]),
            finished_at=_epoch(state["FinishedAt"]),
        )

    def labels(self, token: str, job_id: str, rank: int, nodes: int, slots: tuple[int, ...]) -> dict[str, str]:
        """Return the labels that connect a container with its job."""
        return {
            LABEL_AGENT: self._agent_id,
            LABEL_TOKEN: token,
            LABEL_JOB: job_id,
            LABEL_RANK: str(rank),
            LABEL_NODES: str(nodes),
            LABEL_SLOTS: ",".join(map(str, slots)),
        }

    def has_image(self, image: str) -> bool:
        with _engine_errors():
            try:
                self._api().inspect_image(image)  # type: ignore[no-untyped-call]
            except errors.ImageNotFound:
                return False
        return True

    def image_digest(self, image: str) -> str:
        """Return which content an image on this host has: its first digest in a registry (`name@sha256:...`), else its
        id; empty when it is not here. Raises ContainerError."""
        with _engine_errors():
            try:
                found: Mapping[str, Any] = self._api().inspect_image(image)  # type: ignore[no-untyped-call]
            except errors.ImageNotFound:
                return ""
        return str(next(iter(found.get("RepoDigests") or [found["Id"]])))

    def pull(self, image: str, login: Mapping[str, str] | None = None) -> None:
        """Pull an image. `login`: Docker's AuthConfig; None uses Docker's own configuration on this host. Raises
        ContainerError."""
        name, tag = split_image(image)
        with _engine_errors(), contextlib.closing(self._connect(PULL_SILENCE)) as client:
            try:
                auth = dict(login) if login else None
                for line in client.pull(name, tag=tag, stream=True, decode=True, auth_config=auth):
                    if "error" in line:
                        raise _not_pulled(image, str(line["error"]))
            except errors.APIError as error:
                # For a registry that does not answer, the engine returns status 500.
                raise _not_pulled(image, str(error.explanation or error)) from None

    def create(self, body: Mapping[str, Any], name: str) -> str:
        """Create a container and return its id; the id of the existing one when the name is taken. Raises
        ContainerError."""
        with _engine_errors():
            try:
                return str(self._api().create_container_from_config(dict(body), name)["Id"])  # type: ignore[no-untyped-call]
            except errors.APIError as error:
                if error.status_code == 409:
                    with contextlib.suppress(errors.NotFound):
                        return str(self._api().inspect_container(name)["Id"])
                raise _not_started(error) from None

    def start(self, container: str) -> None:
        """Start a container that `create` made. Raises ContainerError."""
        with _engine_errors():
            try:
                self._api().start(container)
            except errors.APIError as error:
                raise _not_started(error) from None

    def signal(self, container: str, name: str) -> None:
        """Send a signal; `name` as in signal(7). An ended container is not an error."""
        with _engine_errors(), contextlib.suppress(errors.APIError):
            self._api().kill(container, name)

    def output(self, container: str) -> bytes:
        """Return the last part of the container's own output."""
        with _engine_errors():
            try:
                text: bytes = self._api().logs(container, stdout=True, stderr=True, tail=TAIL_LINES)
            except errors.APIError:
                return b""
        # From the beginning of a UTF-8 character on.
        return text[-TAIL_BYTES:].lstrip(bytes(range(0x80, 0xC0))) if len(text) > TAIL_BYTES else text

    def remove(self, container: str) -> None:
        """Kill and remove a container. One that no longer exists is not an error."""
        with _engine_errors(), contextlib.suppress(errors.NotFound):
            try:
                self._api().remove_container(container, force=True, v=True)
            except errors.APIError as error:
                if error.status_code != 409:  # its removal is under way
                    raise EngineAway(f"container {container[:12]} cannot be removed: {error.explanation}") from None

    def watch(self, changed: Callable[[], None], stopped: threading.Event) -> None:
        """Call `changed` for each event of this agent's containers, until the engine goes away or `stopped` is set."""
        filters = {"type": "container", "label": f"{LABEL_AGENT}={self._agent_id}", "event": list(EVENTS)}
        with _engine_errors(), contextlib.closing(self._connect(DEADLINE)) as client:
            stream = client.events(decode=True, filters=filters)
            # Without this the thread would block in a read until the next event.
            threading.Thread(target=_close_after, args=(stopped, stream), name="engine-closer", daemon=True).start()
            for _ in stream:
                if stopped.is_set():
                    return
                changed()

    def _api(self) -> docker.APIClient:
        client: docker.APIClient | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = self._connect(DEADLINE)
        return client

    def _connect(self, deadline: int) -> docker.APIClient:
        return docker.APIClient(self._address, version="auto", timeout=deadline)


def _close_after(stopped: threading.Event, stream: Any) -> None:
    stopped.wait()
    with contextlib.suppress(Exception):  # it may have been closed by the daemon
        stream.close()


@contextlib.contextmanager
def _engine_errors() -> Any:
    """Raise EngineAway for every error that means that the engine does not answer."""
    try:
        yield
    except errors.APIError as error:
        if error.status_code is not None and error.status_code < 500:
            raise
        raise EngineAway(f"the Docker engine failed: {error.explanation or error}") from None
    except (errors.DockerException, requests.RequestException, OSError) as error:
        raise EngineAway(f"the Docker engine does not answer: {error}") from None


def _epoch(text: str) -> float | None:
    """Epoch seconds of RFC 3339 text with nanoseconds; None for Docker's zero time."""
    if not text or text.startswith("0001-"):
        return None
    moment, _, fraction = text.rstrip("Z").partition(".")
    whole = datetime.fromisoformat(f"{moment}+00:00").timestamp()
    return whole + float(f"0.{fraction[:6]}" if fraction[:6].isdigit() else 0)


def split_image(image: str) -> tuple[str, str | None]:
    """Split an image into name and tag; a digest keeps its `sha256:`."""
    if "@" in image:
        name, _, digest = image.partition("@")
        return name, digest
    head, colon, tag = image.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (image, "latest")


def _not_pulled(image: str, why: str) -> ContainerError:
    lowered = why.lower()
    wrong = any(
        word in lowered
        for word in (
            *("not found", "does not exist", "invalid reference", "manifest unknown"),
            *("denied", "unauthorized", "no basic auth credentials", "authentication required", "authorization failed"),
        )
    )
    text = f"The image {image} is not on this host and cannot be pulled: {why.rstrip('.')}."
    return ContainerError(text, Blame.JOB if wrong else Blame.HOST)


def _not_started(error: errors.APIError) -> ContainerError:
    why = str(error.explanation or error).strip()
    lowered = why.lower()
    wrong = "executable file not found" in lowered or "no such file or directory" in lowered or error.status_code == 400
    return ContainerError(f"The container cannot be started: {why.rstrip('.')}.", Blame.JOB if wrong else Blame.HOST)
