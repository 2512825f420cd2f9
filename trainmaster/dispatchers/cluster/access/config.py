"""Configuration keys of a resource manager that define how its cluster is reached."""

from __future__ import annotations

import enum
import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from trainmaster.config.resource_managers import DispatcherOptions
from trainmaster.config.shapes import AbsolutePath, Line, Name, Port, Positive, Section, one_of, wrong

HELPER = "/usr/local/libexec/trainmaster-helper"
# A dash would begin an option, "#" a number for sudo. What else names may hold is for the machine's directory to say:
# user@site.org, DOM\\user, blanks, digits.
_USER = re.compile(r"(?![-#]|\.{1,2}$)[^\x00-\x1f\x7f-\x9f/:]{1,256}")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,254}")


class SshClient(enum.StrEnum):
    PARAMIKO = "paramiko"
    OPENSSH = "openssh"  # the system's `ssh`: its key agents, its configuration, a connection that a person opened


class Impersonation(enum.StrEnum):
    NONE = "none"  # all jobs run as the account that the master uses on the cluster
    SUDO = "sudo"  # as the linked user, by sudo and the helper on the cluster's side
    SSH = "ssh"  # as the linked user, who logs in over SSH


def _plain_host(value: str) -> str:
    if not _HOST.fullmatch(value):
        raise wrong(f"must be the name or the address of a host, found {value!r}")
    return value


def _plain_user(value: str) -> str:
    if not is_account_name(value):
        raise wrong(f"must be the name of an account, found {value!r}")
    return value


def _plain_jump(value: str) -> str:
    try:
        parse_jump(value)
    except ValueError as error:
        raise wrong(str(error).removeprefix("jump_host ")) from None
    return value


class SshOptions(Section):
    """SSH login to a machine that has the scheduler's commands, for a master on another machine. Times are seconds."""

    host: Annotated[Name, AfterValidator(_plain_host)]
    port: Port = 22
    user: Annotated[Name, AfterValidator(_plain_user)] | None = None
    """The account for the master's own queries; without it, the one that the master runs under."""
    identity_file: AbsolutePath | None = None
    """The private key; `{user}` in it stands for the account. Without it: those of the SSH agent and in ~/.ssh."""
    known_hosts: AbsolutePath | None = None
    """The file with the hosts' keys, which are always checked; without it, ~/.ssh/known_hosts."""
    client: Annotated[SshClient, one_of(SshClient)] = SshClient.PARAMIKO
    control_path: AbsolutePath | None = None
    """Socket of a connection that a person opened with `ssh -M -S`, for sites that ask for a second factor."""
    jump_host: Annotated[Line, AfterValidator(_plain_jump)] | None = None
    """Jump host as [user@]host[:port]."""
    python: Line = "python3"
    """Python 3.8 or later on that machine."""
    connect_timeout: float = Field(default=15.0, gt=0)
    sessions: Positive = 8
    """Simultaneous commands on one connection; sshd allows 10 unless MaxSessions says otherwise."""

    @model_validator(mode="after")
    def _shared_by_openssh(self) -> Self:
        if self.control_path is not None and self.client is not SshClient.OPENSSH:
            raise wrong("only the system's OpenSSH can share a connection; set client: openssh", "control_path")
        return self


class AccessOptions(DispatcherOptions):
    """Base of a dispatcher's options: the keys that define how its cluster is reached."""

    ssh: SshOptions | None = None
    """The cluster is reached over SSH; job folders are on its side only."""
    impersonation: Annotated[Impersonation, one_of(Impersonation)] = Impersonation.NONE
    """Whether jobs run as the account that their user is linked to, and how the master becomes it."""
    helper: AbsolutePath = HELPER
    """Where `trainmaster-helper` is installed, for impersonation by sudo."""
    require_user_link: bool = False
    """Refuse jobs of users who are not linked to an account, instead of running them as the master's."""
    external_jobs: bool = True
    """Show jobs of other users in the queue."""

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.ssh is None and self.impersonation is Impersonation.SSH:
            raise wrong("users can log in over SSH only where there is an ssh section", "impersonation")
        if self.ssh is not None and self.job_storage_root is None:
            raise wrong("is required with ssh: a folder on the cluster, not on this machine", "job_storage_root")
        if self.require_user_link and self.impersonation is Impersonation.NONE:
            raise wrong("has no effect while impersonation is none", "require_user_link")
        return self


def is_account_name(name: str) -> bool:
    """Whether `name` can be a Unix account, and can be mistaken neither for an option nor for a path."""
    return _USER.fullmatch(name) is not None


def parse_jump(text: str) -> tuple[str | None, str, int]:
    """Return user, host and port of "[user@]host[:port]". Raises ValueError."""
    user, _, place = text.rpartition("@")
    host, _, port = place.partition(":")
    if not _HOST.fullmatch(host) or (user and not is_account_name(user)) or (port and not port.isdecimal()):
        raise ValueError(f"jump_host must be [user@]host[:port], not {text!r}")
    return user or None, host, int(port or 22)
