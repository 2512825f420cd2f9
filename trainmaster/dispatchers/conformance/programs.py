"""Small programs that replace the runtime in the suite's jobs: each is a zip with a `__main__.py`.

They run on Python 3.8 with the standard library, like the runtime itself.
"""

from __future__ import annotations

import hashlib
import io
import zipfile

from trainmaster.dispatchers.base import JobFile, SharedFile

ENDS_WELL = """
print("hello from the job")
"""

ENDS_WITH = """
import sys
sys.exit(int(open(sys.argv[1] + "/status").read()))
"""

TELLS = """
import json, os, sys, tempfile
facts = {
    "argv": sys.argv[1:], "cwd": os.getcwd(), "environment": dict(os.environ), "tmp": tempfile.gettempdir(),
    "slots": os.environ.get("TRAINMASTER_SLOT_IDS"), "job_folder_mode": os.stat(sys.argv[1]).st_mode & 0o777,
}
with open(sys.argv[1] + "/exit/0.json", "w") as record:
    json.dump(facts, record)
with open(sys.argv[1] + "/spool/core.jsonl", "w") as stream:
    stream.write('{"n": 1}\\n{"n": 2}\\n')
"""

# Waits for a signal to leave, records which one it was, and ends with status 0.
WAITS = """
import os, signal, sys, time
folder, told = sys.argv[1], []
for number in (signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, lambda number, frame: told.append(signal.Signals(number).name))
open(folder + "/ready", "w").close()
deadline = time.time() + 300
while not told and time.time() < deadline:
    time.sleep(0.02)
for number in (signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
with open(folder + "/told.draft", "w") as record:
    record.write("\\n".join(told))
os.rename(folder + "/told.draft", folder + "/told")
"""

STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + "/ready", "w").close()
time.sleep(300)
"""

# Two of these at once on one folder leave the file `overlap` behind.
ALONE = """
import os, sys, time
folder = sys.argv[1]
try:
    os.close(os.open(folder + "/alone", os.O_CREAT | os.O_EXCL))
except FileExistsError:
    open(folder + "/overlap", "w").close()
    sys.exit(0)
time.sleep(1.5)
os.unlink(folder + "/alone")
with open(folder + "/runs", "a") as runs:
    runs.write("x")
"""


def runtime(source: str) -> dict[str, JobFile]:
    """Return the staged files of a job that runs `source` instead of the runtime. As with the runtime, jobs of the same
    program have the same file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", date_time=(1980, 1, 1, 0, 0, 0)), source)
    content = buffer.getvalue()
    return {"runtime.zip": SharedFile(hashlib.sha256(content).hexdigest(), lambda: content)}
