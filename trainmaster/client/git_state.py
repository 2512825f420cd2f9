"""Reads which commit a folder's code is of, and what was changed since, so that an experiment can name its code.

Runs the `git` of this machine. Where there is none, or the folder belongs to no repository, there is nothing to say.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from trainmaster.config.git_state import MOST_DIFF, GitState

DEADLINE = 10.0  # seconds for all calls: a repository on a slow file system does not keep an experiment waiting
# No lock in the repository, no question on the terminal, no program that the repository's own settings name.
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
_PLAIN = ("-c", "core.fsmonitor=false", "-c", "core.quotepath=false", "-c", "core.hooksPath=/dev/null")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", "HEAD", "--")


def git_state(path: Path) -> GitState | None:
    """Return the state of the repository that a folder or file is in; None without git, repository or commit, or where
    git does not answer within DEADLINE. The diff is of what is below `path`."""
    folder = path if path.is_dir() else path.parent
    scope = "." if path.is_dir() else path.name
    git = _Git(folder, time.monotonic() + DEADLINE)
    head = git.read("log", "-1", "--no-show-signature", "--format=%H%x00%cn%x00%cI").rstrip("\n").split("\0")
    if len(head) != 3:
        return None
    branch = git.read("symbolic-ref", "--quiet", "--short", "HEAD").strip()
    upstream = git.read("config", "--get", f"branch.{branch}.remote").strip() if branch else ""
    try:
        return GitState.of(
            commit=head[0],
            committer=head[1],
            committed=head[2],
            branch=branch,
            remote=git.read("config", "--get", f"remote.{upstream or 'origin'}.url").strip(),
            untracked=git.read("ls-files", "--others", "--exclude-standard", "-z", "--", scope).count("\0"),
            diff=git.read(*_DIFF, scope, most=MOST_DIFF + 1),
        )
    except ValueError:  # a name of thousands of characters
        return None


@dataclass(frozen=True)
class _Git:
    folder: Path
    until: float  # of the monotonic clock

    def read(self, *arguments: str, most: int = 2**20) -> str:
        """Return what a command prints, at most `most` bytes; empty where it fails or no time is left."""
        try:
            process = subprocess.Popen(
                ("git", *_PLAIN, *arguments),
                cwd=self.folder,
                env={**os.environ, **_QUIET},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return ""
        with process:
            assert process.stdout is not None
            content, ended = self._content(process.stdout.fileno(), most)
            if not ended:
                process.kill()
        return content.decode(errors="replace") if process.returncode == 0 or len(content) == most else ""

    def _content(self, output: int, most: int) -> tuple[bytes, bool]:
        """Read until the end of the output, the bound or the deadline; say whether it was the end."""
        content = b""
        while len(content) < most:
            left = self.until - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                return content, False
            piece = os.read(output, min(2**16, most - len(content)))
            if not piece:
                return content, True
            content += piece
        return content, False
