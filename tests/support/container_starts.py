"""Runs a `start.sh` with a program in place of the container runtime that records its calls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainmaster.containers import ContainerStart, container_runtime

QUESTIONS = (["image"], ["pull"])
RECORDS = """#!{python} -S
import json, os, sys
with open({record!r}, "a") as record:
    print(json.dumps({{"argv": sys.argv[1:], "environment": dict(os.environ)}}), file=record)
"""
SMI = """#!{python} -S
import sys
ids = next(word for word in sys.argv if word.startswith("--id=")).partition("=")[2].split(",")
if any(id not in "0123" for id in ids):
    print("No devices were found")
    sys.exit(6)
print("\\n".join("GPU-0000-%s" % id for id in ids))
"""


@dataclass(frozen=True)
class Call:
    """How the container runtime's program was called. The private folder of the start is written as PRIVATE."""

    argv: list[str]
    environment: Mapping[str, str]

    def values(self, option: str) -> list[str]:
        """What stands behind each `option`, as its own word or after an equals sign."""
        after = [b for a, b in zip(self.argv, self.argv[1:], strict=False) if a == option]
        return after + [word.partition("=")[2] for word in self.argv if word.startswith(f"{option}=")]


def called(
    runtime: str, start: ContainerStart, folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[Call, subprocess.CompletedProcess[str]]:
    """The first call that is no question about the image. `folder`: what the test may write in."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    record = folder / "calls"
    (tools / "tool").write_text(RECORDS.format(python=sys.executable, record=str(record)))
    (tools / "nvidia-smi").write_text(SMI.format(python=sys.executable))
    for tool in tools.iterdir():
        tool.chmod(0o755)
    start.job_folder.mkdir(parents=True, exist_ok=True)
    script = start.job_folder / "start.sh"
    script.write_text(container_runtime(runtime, str(tools / "tool")).start_script(start))
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    clean = {
        "PATH": f"{tools}:/usr/bin:/bin",
        "HOME": "/home/ada",
        "USER": "ada",
        "TMPDIR": str(scratch),
        "HOSTNAME": "n1",
        "SECRET_OF_THE_NODE": "x",
        **(environment or {}),
    }
    done = subprocess.run(
        ["bash", str(script)], env=clean, capture_output=True, text=True, timeout=60, check=False, cwd="/"
    )
    assert not list(scratch.iterdir()), "the private folder stayed behind"
    calls = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    calls = [call for call in calls if call["argv"][:1] not in QUESTIONS]
    if not calls:
        return Call([], {}), done
    text = json.dumps(calls[0])
    found = _private(text, str(scratch))
    first = json.loads(text.replace(found, "PRIVATE") if found else text)
    return Call(first["argv"], first["environment"]), done


def _private(text: str, scratch: str) -> str | None:
    """The folder that the script made in `scratch`."""
    at = text.find(f"{scratch}/tm.")
    if at < 0:
        return None
    end = at + len(scratch) + 1
    while text[end] not in '/",\\':
        end += 1
    return text[at:end]
