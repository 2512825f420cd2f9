"""`python3 -m trainmaster.launchers.wrap_rank RANK_VARIABLE -- PROGRAM ARGS...`: run one rank.

Its lines get the prefix `[rank=N] `, by which the runtime tells whose they are; its status (128 + signal when
it was killed) is this process's, and is left in `<run folder>/ranks/` for the launcher, because torchrun
itself only says that some rank failed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO, List, Optional, Sequence, Tuple

from trainmaster.runtime.prctl import die_with_parent

RANKS = "ranks"  # folder below TRAINMASTER_RUN_DIR
_LONGEST = 1 << 16  # bytes of a line without an end that are held back
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def prefix_lines(text: bytes, prefix: bytes, at_start: bool) -> Tuple[bytes, bool]:
    """`text` with `prefix` before every line, a carriage return counting as a line's end.

    `at_start` says whether `text` begins a line; the second result whether what follows it does.
    """
    pieces: List[bytes] = []
    # "\r\n" is one end; a lone "\n" after "\r" came through only in a second read and gets no prefix of its own.
    for piece in text.replace(b"\r\n", b"\n").splitlines(keepends=True) if text else []:
        if at_start and piece != b"\n":
            pieces.append(prefix)
        pieces.append(piece)
        at_start = piece.endswith((b"\n", b"\r"))
    return b"".join(pieces), at_start


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its status."""
    if len(arguments) < 3 or arguments[1] != "--":
        sys.stderr.write("usage: python3 -m trainmaster.launchers.wrap_rank RANK_VARIABLE -- PROGRAM ARGS...\n")
        return 64
    variable, program = arguments[0], list(arguments[2:])
    rank = os.environ.get(variable)
    if rank is None or not rank.isdigit():
        sys.stderr.write("wrap_rank: %s is not set to a rank: this is started by a launcher\n" % variable)
        return 64
    parent = os.getpid()
    try:
        # No thread runs yet, so that the function before exec is safe.
        child = subprocess.Popen(
            program,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: die_with_parent(parent),
        )
    except FileNotFoundError:
        sys.stderr.write("[rank=%s] there is no program %r\n" % (rank, program[0]))
        return _leave(rank, 127)
    except OSError as error:
        sys.stderr.write("[rank=%s] %r cannot be run: %s\n" % (rank, program[0], error.strerror))
        return _leave(rank, 126)
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: child.send_signal(number))
    assert child.stdout is not None
    assert child.stderr is not None
    prefix = ("[rank=%s] " % rank).encode("ascii")
    pumps = [
        threading.Thread(target=_pump, args=(child.stdout, 1, prefix), daemon=True),
        threading.Thread(target=_pump, args=(child.stderr, 2, prefix), daemon=True),
    ]
    for pump in pumps:
        pump.start()
    returncode = child.wait()
    for pump in pumps:
        pump.join(5.0)  # something the rank left behind may hold its pipes
    return _leave(rank, 128 - returncode if returncode < 0 else returncode)


def first_failure(folder: Optional[Path]) -> Optional[int]:
    """The status of the rank that failed first, None when none did or nothing is known.

    Ranks that died of SIGTERM come last: that is what the launcher does to the others.
    """
    failures = []
    for path in sorted(folder.glob("*.json")) if folder is not None and folder.is_dir() else []:
        try:
            left = json.loads(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if left["status"] != 0:
            failures.append((left["status"] == 128 + signal.SIGTERM, left["at"], left["status"]))
    return min(failures)[2] if failures else None


def ranks_folder() -> Optional[Path]:
    """Where ranks leave their status; None outside a job."""
    run_dir = os.environ.get("TRAINMASTER_RUN_DIR")
    return Path(run_dir) / RANKS if run_dir else None


def _leave(rank: str, status: int) -> int:
    folder = ranks_folder()
    if folder is not None:
        try:
            folder.mkdir(exist_ok=True)
            (folder / (rank + ".json")).write_text(json.dumps({"status": status, "at": time.time()}), encoding="ascii")
        except OSError as error:
            sys.stderr.write("[rank=%s] its status cannot be left in %s: %s\n" % (rank, folder, error))
    return status


def _pump(source: BinaryIO, target: int, prefix: bytes) -> None:
    at_start = True
    rest = b""
    with source:
        while True:
            block = os.read(source.fileno(), 1 << 16)
            text = rest + block
            # Whole lines only, so that those of several ranks do not mix on their way.
            end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            if not block or len(text) - end > _LONGEST:
                end = len(text)
            whole, rest = text[:end], text[end:]
            whole, at_start = prefix_lines(whole, prefix, at_start)
            try:
                while whole:
                    whole = whole[os.write(target, whole) :]
            except BrokenPipeError:
                return
            if not block:
                return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
