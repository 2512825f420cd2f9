"""Runs commands and accesses job folders as another account or on another machine, through the helper program."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainmaster.dispatchers.base import (
    FolderFacts,
    JobFile,
    Rejected,
    Remains,
    StreamPosition,
    Transient,
    Unreachable,
    sentence,
)
from trainmaster.dispatchers.cluster.access.helper_client import FailedInHelper, HelperClient, RefusedByHelper
from trainmaster.dispatchers.cluster.access.transport import ConnectionLost, ProgramNotStarted
from trainmaster.dispatchers.cluster.command_runner import CommandResult
from trainmaster.dispatchers.cluster.folder import (
    check_names,
    copied,
    parted,
    piece_of,
    shared_folders,
    stage_in_rounds,
)
from trainmaster.dispatchers.cluster.jobfolder import helper, job_files, own_files, trees

FOLDER_DEADLINE = 120.0  # seconds for reading or writing a job folder


class RemoteShell:
    """Runs commands as another account or on another machine; a `command_runner.Runner`."""

    def __init__(self, there: HelperClient, user: str | None, environment: Mapping[str, str], path: str) -> None:
        self._there = there
        self._user = user
        self.path = path
        self.environment: Mapping[str, str] = {"PATH": path, **environment}

    def run(self, argv: Sequence[str], *, deadline: float, stdin: str = "") -> CommandResult:
        words = tuple(argv)
        begun = time.monotonic()

        def outcome(returncode: int = -1, stdout: str = "", stderr: str = "", **what: Any) -> CommandResult:
            return CommandResult(words, returncode, stdout, stderr, time.monotonic() - begun, **what)

        try:
            reply = self._there.ask("run", deadline, argv=words, environment=self.environment, stdin=stdin)
        except RefusedByHelper as error:
            return outcome(refused=sentence(error))
        except (ProgramNotStarted, FailedInHelper) as error:
            return outcome(unreached=sentence(error))
        except ConnectionLost as error:
            return outcome(cut=sentence(error))
        if reply.get("not_found"):
            return outcome(127, stderr=str(reply["stderr"]), not_found=True)
        if not reply.get("whole", True):
            too_much = f"{helper.MAX_OUTPUT >> 20} MiB"
            return outcome(cut=f"`{' '.join(words[:3])} ...` printed more than {too_much}, which is more than is read.")
        stdout = helper.unpack(reply["stdout"]).decode(errors="replace")
        return outcome(int(reply["returncode"]), stdout, str(reply["stderr"]), timed_out=bool(reply["timed_out"]))


class RemoteFolder:
    """The folder of one job of another account or on another machine."""

    def __init__(self, there: HelperClient, root: Path, token: str, cache_dir: str) -> None:
        """`cache_dir`: name of the folder of shared files of the job's account."""
        self._there = there
        self._root = root
        self._cache_dir = cache_dir
        self.token = token
        self.path = root / token

    def shared_folders(self, files: Mapping[str, JobFile]) -> list[Path]:
        """As JobFolder.shared_folders."""
        return shared_folders(self._root, self._cache_dir, files)

    def stage_sharing(self, files: Mapping[str, JobFile]) -> None:
        """As JobFolder.stage_sharing; also raises Unreachable. Content of shared files travels only where it is
        missing."""
        check_names(self.token, files)
        own, shared = parted(files)
        packed = _packed(own)

        def stage(known: Mapping[str, bytes]) -> list[str] | None:
            wanted = {
                name: {"sha256": file.sha256, **({"content": helper.pack(known[name])} if name in known else {})}
                for name, file in shared.items()
            }
            reply = self._ask("stage", "cannot be written", files=packed, shared=wanted, shelf=self._cache_dir)
            if "not_shared" in reply:
                return None
            return [name for name in shared if name in reply["missing"]]

        if not stage_in_rounds(shared, stage):
            self.stage(files)

    def stage(self, files: Mapping[str, JobFile]) -> None:
        """Stage files as JobFolder.stage; also raises Unreachable."""
        check_names(self.token, files)
        self._ask("stage", "cannot be written", files=_packed(copied(files)))

    def collect(self, places: Mapping[str, StreamPosition] | None = None, most: int = 2**30) -> Remains:
        """As JobFolder.collect; also raises Unreachable."""
        known = None if places is None else {name: (place.line, place.offset) for name, place in places.items()}
        reply = self._ask("collect", "cannot be read", places=known, most=most)
        output = reply["output_tail"]
        try:
            return Remains(
                exits={int(rank): helper.unpack(text, job_files.MAX_RECORD) for rank, text in reply["exits"].items()},
                streams={
                    name: piece_of(helper.unpack(piece[0], job_files.PIECE), *piece[1:])
                    for name, piece in reply["streams"].items()
                },
                output_tail=None if output is None else helper.unpack(output, job_files.TAIL).decode(errors="replace"),
            )
        except (
            own_files.RequestRefused,
            ValueError,
            TypeError,
            LookupError,
            zlib.error,
        ) as error:  # over SSH: the user
            raise Transient(f"The job folder {self.path} cannot be read: {error!r:.200}.", token=self.token) from None

    def forget(self) -> None:
        """As JobFolder.forget; also raises Unreachable."""
        self._ask("forget", "could not be removed completely")

    def _ask(self, verb: str, what: str, **fields: Any) -> Mapping[str, Any]:
        with _in_words(f"The job folder {self.path} {what}", self.token):
            return self._there.ask(verb, FOLDER_DEADLINE, root=str(self._root), token=self.token, **fields)


def _packed(files: Mapping[str, JobFile]) -> dict[str, Any]:
    return {name: {"content": helper.pack(file.content), "mode": file.mode} for name, file in files.items()}


class RemoteFiles:
    """Files of another account or on another machine; a `base.HeldFiles`."""

    def __init__(self, there: HelperClient) -> None:
        self._there = there

    def remove(self, folder: str, patterns: Sequence[str], since: float | None) -> Mapping[str, int]:
        with _in_words(f"{folder} cannot be removed"):
            reply = self._there.ask("clear", FOLDER_DEADLINE, folder=folder, patterns=list(patterns), since=since)
        if "untouched" in reply:
            raise trees.Untouched(str(reply["untouched"]))
        if "unfinished" in reply:
            raise trees.Unfinished(str(reply["unfinished"]))
        return {str(path): int(size) for path, size in reply["left"].items()}


def announce(there: HelperClient, root: Path, url: str) -> int:
    """Write the master's address beside the job folders in `root`. Returns the uid of the file's owner there. Raises
    Rejected, Transient, Unreachable."""
    with _in_words(f"The master's address cannot be written into {root}"):
        return int(there.ask("announce", FOLDER_DEADLINE, root=str(root), url=url)["owner"])


def folder_facts(there: HelperClient, paths: Sequence[str]) -> dict[str, FolderFacts | None]:
    """Ask for what an account finds at each path. Raises Rejected, Transient, Unreachable."""
    with _in_words("Folders cannot be checked"):
        listed = there.ask("check", FOLDER_DEADLINE, paths=list(paths))["paths"]
    return {
        path: None if known is None else FolderFacts(known[0], known[1], bool(known[2]), bool(known[3]))
        for path, known in listed.items()
    }


@contextmanager
def _in_words(what: str, token: str | None = None) -> Iterator[None]:
    """Raise dispatcher errors that begin with `what`, for a request that may be repeated even if it took effect."""
    try:
        yield
    except RefusedByHelper as error:
        raise Rejected(sentence(error), token=token) from None
    except FailedInHelper as error:
        raise Transient(f"{what}: {error}.", token=token) from None
    except ConnectionLost as error:
        raise Transient(f"{what}: {error}", token=token) from None
    except ProgramNotStarted as error:
        raise Unreachable(str(error), token=token) from None
