"""Faults of the stand-in scheduler: files in its configuration folder switch them on."""

import os
import sys
from pathlib import Path

SPOOL = Path(os.environ["LSF_ENVDIR"])
NOISE = "*** The cluster will be down on Sunday. ***"


def begin() -> None:
    if is_so("away"):
        sys.exit("LSF is down. Please wait ...")
    if is_so("noisy"):
        print(NOISE)


def end() -> None:
    if is_so("noisy"):
        print(NOISE)


def is_so(what: str) -> bool:
    return (SPOOL / what).exists()
