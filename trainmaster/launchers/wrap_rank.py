"""`python3 -m trainmaster.launchers.wrap_rank RANK_VARIABLE [--] PROGRAM ARGS...`: run one rank.

Its lines get the prefix `[rank=N] `, by which the runtime attributes them to it; its status (128 + signal when
it was killed) is this process's, and is left in the run folder (`runtime.ranks`) for the launcher and the runtime,
because torchrun itself only reports that some rank failed. RANK_VARIABLE may also be the rank itself. The grammar is
that of `determined.launch.wrap_rank` 0.38.1, whose `--no-redirect-stdio` leaves the program's streams alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import BinaryIO, List, Sequence, Tuple

from trainmaster.runtime.logs import character_end
from trainmaster.runtime.prctl import die_with_parent
from trainmaster.runtime.process import pmi_descriptor
from trainmaster.runtime.ranks import RankEnd, leave_rank_end

USAGE = "usage: python3 -m trainmaster.launchers.wrap_rank [--no-redirect-stdio] RANK_VARIABLE [--] PROGRAM ARGS..."
# Process of this node whose streams a rank writes to, where its own lead to another node (mpirun's do).
STREAMS = "TRAINMASTER_STREAMS"
_LONGEST = 1 << 16  # bytes of a line without an end that are held back
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def prefix_lines(text: bytes, prefix: bytes, at_start: bool) -> Tuple[bytes, bool]:
    """Put `prefix` before every line of `text`, a carriage return counting as a line's end.

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
    words = list(arguments)
    redirect = words[:1] != ["--no-redirect-stdio"]
    variable, program = words[0 if redirect else 1 :][:1], words[1 if redirect else 2 :]
    if program[:1] == ["--"]:
        del program[0]
    if not variable or not program:
        sys.stderr.write(USAGE + "\n")
        return 64
    rank = variable[0] if variable[0].isdigit() else os.environ.get(variable[0], "")
    if not rank.isdigit():
        sys.stderr.write("wrap_rank: %s is not set to a rank: this is started by a launcher\n" % variable[0])
        return 64
    parent = os.getpid()
    try:
        # No thread runs yet, so that the function before exec is safe.
        child = subprocess.Popen(
            program,
            stdout=subprocess.PIPE if redirect else None,
            stderr=subprocess.PIPE if redirect else None,
            preexec_fn=lambda: die_with_parent(parent),
            pass_fds=pmi_descriptor(os.environ),
        )
    except FileNotFoundError:
        sys.stderr.write("[rank=%s] there is no program %r\n" % (rank, program[0]))
        return _leave(int(rank), 127, time.time())
    except OSError as error:
        sys.stderr.write("[rank=%s] %r cannot be run: %s\n" % (rank, program[0], error.strerror))
        return _leave(int(rank), 126, time.time())
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: child.send_signal(number))
    prefix = ("[rank=%s] " % rank).encode("ascii")
    pumps = [
        threading.Thread(target=_pump, args=(source, _target(number), prefix), daemon=True)
        for source, number in ((child.stdout, 1), (child.stderr, 2))
        if source is not None
    ]
    for pump in pumps:
        pump.start()
    returncode = child.wait()
    ended = time.time()  # before the pumps: other ranks fail soon after this one, and the first failure is to be known
    for pump in pumps:
        pump.join(5.0)  # something the rank left behind may hold its pipes
    return _leave(int(rank), 128 - returncode if returncode < 0 else returncode, ended)


def _target(number: int) -> int:
    """Open the file for what goes to stream `number`."""
    process = os.environ.get(STREAMS, "")
    if process.isdigit():
        try:
            return os.open("/proc/%s/fd/%d" % (process, number), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return number
    return number


def _leave(rank: int, status: int, ended: float) -> int:
    folder = os.environ.get("TRAINMASTER_RUN_DIR")
    if folder:
        try:
            leave_rank_end(folder, RankEnd(rank, status, ended))
        except OSError as error:
            sys.stderr.write("[rank=%d] its status cannot be left in %s: %s\n" % (rank, folder, error))
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
            if not block:
                end = len(text)
            elif len(text) - end > _LONGEST:
                end = character_end(text, len(text) - 1)  # what follows may be another rank's
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
