"""Which commit an experiment's code is of, and what was changed since: the client reads it, the master keeps it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from trainmaster.config.masks import masked_address, masked_code

MOST_DIFF = 256 * 1024  # bytes
MOST_NAME = 1000  # characters of any other field
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True)
class GitState:
    """A commit and what was changed since. `branch` is empty for a detached head, `remote` for a repository without
    one; `committed` is an ISO time. `diff`: what `git apply` takes, with masks for secrets; `diff_cut`: there was more.
    `untracked`: files beside the code that are in no commit."""

    commit: str
    committer: str = ""
    committed: str = ""
    branch: str = ""
    remote: str = ""
    untracked: int = 0
    diff: str = ""
    diff_cut: bool = False

    @classmethod
    def of(cls, **found: Any) -> GitState:
        """Make a state from what `git` or a client says: secrets are masked, and the diff is cut at its bound. Raises
        ValueError with a sentence."""
        if not _COMMIT.fullmatch(found["commit"]):
            raise ValueError(f"{found['commit'][:80]!r} is not the name of a commit: 7 to 64 hexadecimal digits.")
        for name, value in found.items():
            if name != "diff" and isinstance(value, str) and len(value) > MOST_NAME:
                raise ValueError(f"The {name} of the commit is too long: at most {MOST_NAME} characters.")
        # The database takes no NUL and no half of a surrogate pair.
        found = {name: _storable(value) if isinstance(value, str) else value for name, value in found.items()}
        diff = str(found.get("diff", "")).encode()
        cut = len(diff) > MOST_DIFF
        # Cut at the end of a line: half of a secret has no mask.
        kept = diff[:MOST_DIFF].rpartition(b"\n")[0] + b"\n" if cut else diff
        return cls(
            **{
                **found,
                "remote": masked_address(found.get("remote", "")),
                "diff": masked_code(kept.decode(errors="ignore")),
                "diff_cut": cut or bool(found.get("diff_cut")),
            }
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> GitState:
        return cls(**{field.name: stored[field.name] for field in fields(cls) if field.name in stored})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def changed_lines(self) -> int:
        """Lines that the diff adds or removes."""
        lines = self.diff.splitlines()
        return sum(line[:1] in ("+", "-") and line[:3] not in ("+++", "---") for line in lines)


def _storable(text: str) -> str:
    return text.replace("\0", "").encode(errors="replace").decode()
