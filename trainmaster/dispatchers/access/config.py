"""The keys of a resource manager's section that say how its cluster is reached."""

from __future__ import annotations

import enum
import re

from pydantic import BaseModel, ConfigDict, Field, field_validator

HELPER = "/usr/local/libexec/trainmaster-helper"
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,254}")


class SshClient(enum.StrEnum):
    PARAMIKO = "paramiko"
    OPENSSH = "openssh"  # the system's `ssh`: its agents, its configuration, a connection that a person opened


class Impersonation(enum.StrEnum):
    NONE = "none"  # all jobs run as the account that reaches the cluster
    SUDO = "sudo"  # as the linked user, by sudo and the helper on the cluster's side
    SSH = "ssh"  # as the linked user, who logs in over SSH


class SshOptions(BaseModel):
    """How to log in to a machine that has the scheduler's commands. Times are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    port: int = Field(default=22, ge=1, le=65535)
    user: str | None = Field(default=None, description="account for the master's own questions; default: the same name")
    identity_file: str | None = Field(default=None, description="private key; `{user}` in it is the account's name")
    known_hosts: str | None = Field(default=None, description="file with the hosts' keys; default: ~/.ssh/known_hosts")
    client: SshClient = SshClient.PARAMIKO
    control_path: str | None = Field(default=None, description="socket of a connection that a person keeps open")
    jump_host: str | None = Field(default=None, description="[user@]host[:port] to go through")
    python: str = Field(default="python3", description="Python 3.8 or later at the far end")
    connect_timeout: float = Field(default=15.0, gt=0)
    sessions: int = Field(default=8, ge=1, description="commands at once on one connection; sshd's MaxSessions is 10")

    @field_validator("host")
    @classmethod
    def _plain_host(cls, value: str) -> str:
        if not _HOST.fullmatch(value):
            raise ValueError(f"{value!r} is no host name")
        return value

    @field_validator("user")
    @classmethod
    def _plain_user(cls, value: str | None) -> str | None:
        if value is not None and not is_account_name(value):
            raise ValueError(f"{value!r} is no account name")
        return value

    @field_validator("jump_host")
    @classmethod
    def _plain_jump(cls, value: str | None) -> str | None:
        if value is not None:
            parse_jump(value)
        return value


class AccessOptions(BaseModel):
    """The part of a section that is the same for every scheduler; a dispatcher's own options inherit from it."""

    # The section also holds the master's own keys; what may stand in it is checked where the file is read.
    model_config = ConfigDict(frozen=True, extra="ignore")

    ssh: SshOptions | None = None
    impersonation: Impersonation = Impersonation.NONE
    helper: str = Field(default=HELPER, pattern=r"^/[^\n]*$", description="where the helper is installed")
    require_user_link: bool = Field(default=False, description="refuse jobs of users without a linked account")
    external_jobs: bool = Field(default=True, description="show other people's jobs in the queue")


def is_account_name(name: str) -> bool:
    """True for what can be a Unix account: neither an option nor a path can hide in it."""
    return _USER.fullmatch(name) is not None


def parse_jump(text: str) -> tuple[str | None, str, int]:
    """User, host and port of "[user@]host[:port]". Raises ValueError."""
    user, _, place = text.rpartition("@")
    host, _, port = place.partition(":")
    if not _HOST.fullmatch(host) or (user and not is_account_name(user)) or (port and not port.isdecimal()):
        raise ValueError(f"jump_host must be [user@]host[:port], not {text!r}")
    return user or None, host, int(port or 22)
