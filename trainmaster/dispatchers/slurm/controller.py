"""What Slurm's controller says of itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.dispatchers.slurm.parse import epoch

ROOT = 0


@dataclass(frozen=True)
class SlurmController:
    """`started_at`: when slurmctld was started last, epoch seconds by its clock; None: not known. `accounts`: uids
    under which Slurm itself cancels jobs, beside persons who act as root."""

    started_at: float | None
    accounts: frozenset[int]

    @classmethod
    def of(cls, configuration: Mapping[str, str]) -> SlurmController:
        """From `scontrol show config` under SLURM_TIME_FORMAT=%s: "BOOT_TIME = 1795242711", "SlurmUser = root(0)"."""
        printed = (configuration.get(name, "") for name in ("SlurmUser", "SlurmdUser"))
        uids = (re.search(r"\((\d+)\)", text) for text in printed)
        accounts = frozenset({ROOT, *(int(found[1]) for found in uids if found)})
        return cls(epoch(configuration.get("BOOT_TIME", "")), accounts)
