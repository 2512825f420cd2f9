"""How a Slurm job's script ended, as Slurm prints it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

REMEMBERED = 4096  # cached results: of thousands of jobs in a listing, most have the same text


@dataclass(frozen=True)
class SlurmExit:
    """How a script ended: an exit code 0..255, or the signal that ended it."""

    code: int = 0
    signal: int | None = None

    @classmethod
    def from_wait_status(cls, status: int) -> SlurmExit:
        """From the number that `squeue -O exit_code` prints: wait(2)'s status, with Slurm's own signals in it."""
        number = status & 0x7F
        return cls(code=0, signal=number) if number else cls(code=(status >> 8) & 0xFF)

    @classmethod
    @lru_cache(REMEMBERED)
    def parse(cls, text: str) -> SlurmExit | None:
        """From "code:signal" or the raw status; None when it is neither."""
        if re.fullmatch(r"\d+", text):
            return cls.from_wait_status(int(text))
        found = re.fullmatch(r"(\d+):(\d+)", text)
        if not found:
            return None
        code, number = int(found[1]), int(found[2])
        return cls(code=0, signal=number) if number else cls(code=code & 0xFF)
