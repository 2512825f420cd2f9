"""What a trial runs in and on: image, variables, mounts, slots, scheduler options."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from trainmaster.config.messages import in_words
from trainmaster.config.shapes import AbsolutePath, Bytes, Line, Name, Natural, Port, Section, Text, Whole, wrong

DEVICES = ("cpu", "cuda", "rocm")
# What Determined 0.38.1 runs when nothing is said.
DEFAULT_IMAGE = "determinedai/pytorch-ngc-dev:0736b6d"
DEFAULT_ROCM_IMAGE = "determinedai/environments:rocm-5.0-pytorch-1.10-tf-2.7-rocm-0.26.4"


def _by_device(value: Any) -> Any:
    """One value for all kinds of slots, or one each; `gpu` is an old word for cuda."""
    if isinstance(value, dict):
        value = dict(value)
        gpu = value.pop("gpu", None)
        if gpu is not None and value.get("cuda") is None:
            value["cuda"] = gpu
        return value
    return {device: value for device in DEVICES}


def images(value: Any) -> Any:
    """One image for all kinds of slots, or one each."""
    if not isinstance(value, str | dict):
        raise wrong(f"an image, or a mapping of cpu, cuda and rocm to images, is wanted, found {in_words(value)}")
    return _by_device(value)


def variables(value: Any) -> Any:
    """One list for all kinds of slots, or one each."""
    if not isinstance(value, list | dict):
        raise wrong(
            "a list of NAME=VALUE, or a mapping of cpu, cuda and rocm to such lists, is wanted, "
            f"found {in_words(value)}"
        )
    return _by_device(value)


class Images(Section):
    """The container image by kind of slot."""

    cpu: Name = DEFAULT_IMAGE
    cuda: Name = DEFAULT_IMAGE
    rocm: Name = DEFAULT_ROCM_IMAGE


_VARIABLE = re.compile(r"[^\s=\0]+(=.*)?", re.DOTALL)


def _is_variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise wrong(f"must be NAME=VALUE or NAME, the name without blanks, found {value!r:.60}")
    return value


Variable = Annotated[Text, AfterValidator(_is_variable)]


class Variables(Section):
    """Environment variables by kind of slot, `NAME=VALUE` or `NAME`; later entries win."""

    cpu: list[Variable] = Field(default_factory=list)
    cuda: list[Variable] = Field(default_factory=list)
    rocm: list[Variable] = Field(default_factory=list)


class ProxyPort(Section):
    """A port of the trial that the master passes on."""

    proxy_port: Port
    proxy_tcp: bool = False
    unauthenticated: bool = False
    default_service_id: bool = False


class RegistryAuth(Section):
    """How to log in to the image registry."""

    username: Line | None = None
    password: Line | None = None
    server: Line | None = None
    serveraddress: Line | None = None
    email: Line | None = None
    auth: Line | None = None
    identitytoken: Line | None = None
    registrytoken: Line | None = None


class Environment(Section):
    """The `environment` section."""

    refused: ClassVar[dict[str, str]] = {
        "slurm": "unknown key; the slurm section stands at the top level",
        "pbs": "unknown key; the pbs section stands at the top level",
    }

    image: Annotated[Images, BeforeValidator(images)] = Images()
    environment_variables: Annotated[Variables, BeforeValidator(variables)] = Variables()
    proxy_ports: list[ProxyPort] = Field(default_factory=list)
    ports: dict[str, Whole] = Field(default_factory=dict)
    force_pull_image: bool = False
    registry_auth: RegistryAuth | None = None
    add_capabilities: list[Line] = Field(default_factory=list)
    drop_capabilities: list[Line] = Field(default_factory=list)
    pod_spec: dict[str, Any] | None = None
    modules: list[Name] = Field(default_factory=list)
    """Environment modules that are loaded before the entrypoint, in this order."""
    conda: Name | None = None
    """A conda environment, by name or path, that is activated then."""
    venv: Name | None = None
    """The folder of a virtual environment that is activated then; below the work directory unless it begins with /."""
    setup: Text | None = None
    """Lines of shell that run last before the entrypoint, in its shell."""


def _mount_target(value: str) -> str:
    if value == ".":
        raise wrong('must not be "."; name a folder')
    return value


class BindMount(Section):
    """A folder of the host in the container; a relative target is below the work directory."""

    host_path: AbsolutePath
    container_path: Annotated[Name, AfterValidator(_mount_target)]
    read_only: bool = False
    propagation: Line = "rprivate"


def _device(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    host, _, rest = value.partition(":")
    container, _, mode = rest.partition(":")
    if not host or not container or not set(mode) <= set("rwm"):
        raise wrong(f"a device is HOST_PATH:CONTAINER_PATH or HOST_PATH:CONTAINER_PATH:rwm, found {value!r}")
    return {"host_path": host, "container_path": container, **({"mode": mode} if mode else {})}


class Device(Section):
    """A device of the host in the container."""

    host_path: AbsolutePath
    container_path: AbsolutePath
    mode: Line = "mrw"


Devices = list[Annotated[Device, BeforeValidator(_device)]]


class Resources(Section):
    """The `resources` section."""

    ignored: ClassVar[frozenset[str]] = frozenset({"agent_label", "slots"})
    """`slots` is for commands and notebooks, and stands in templates that experiments share with them."""

    slots_per_trial: Natural = 1
    max_slots: Natural | None = None
    weight: float = Field(default=1.0, ge=0)
    priority: Annotated[Whole, Field(ge=1, le=99)] | None = None
    resource_pool: Line = ""
    shm_size: Bytes | None = None
    devices: Devices = Field(default_factory=list)
    is_single_node: bool | None = None
    native_parallel: bool = False


def _action(value: Any) -> Any:
    """Accept the form of earlier releases, a mapping with a type."""
    if isinstance(value, dict) and set(value) == {"type"}:
        return value["type"]
    return value


def _pattern(value: str) -> str:
    from trainmaster.config.patterns import BadPattern, compiled  # the library is loaded where there is a pattern

    try:
        compiled(value)
    except BadPattern as error:
        raise wrong(f"is not a regular expression (of RE2's kind): {error}") from None
    return value


class LogPolicy(Section):
    """What a line in the log means; without a pattern it switches off the inherited policy of its name."""

    name: Name | None = None
    pattern: Annotated[Line, AfterValidator(_pattern)] | None = None
    action: Annotated[Literal["cancel_retries", "exclude_node"], BeforeValidator(_action)] | None = None

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.name is None and (self.pattern is None or self.action is None):
            raise wrong("needs a name")
        return self
