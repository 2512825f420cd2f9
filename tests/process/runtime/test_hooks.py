"""Startup hooks: shell scripts of the administrator and of the user, read before the entrypoint begins."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process.runtime.test_whole_job import archive

PRINTS = "import os; print('got', os.environ.get('ADMIN'), os.environ.get('MINE'))"


@pytest.mark.parametrize("entrypoint", ["python3 train.py", ["python3", "train.py"]])
def test_entrypoint_sees_hook_exports_administrators_first(stage: Any, entrypoint: Any) -> None:
    context = archive(**{"train.py": PRINTS, "startup-hook.sh": 'export MINE="after $ADMIN"\n'})
    job, master = stage(entrypoint, context=context)
    (job.folder / "hooks").mkdir()
    (job.folder / "hooks" / "00.sh").write_text("export ADMIN=first\n")
    (job.folder / "hooks" / "01.sh").write_text('export ADMIN="$ADMIN, second"\n')
    status, output = job.run()
    assert status == 0, output
    assert "got first, second after first, second" in master.lines()


def test_failing_hook_ends_attempt_before_entrypoint(stage: Any) -> None:
    context = archive(**{"train.py": PRINTS, "startup-hook.sh": "echo before\nfalse\necho after\n"})
    job, master = stage("python3 train.py", context=context)
    status, _ = job.run()
    assert status == 1
    assert "before" in master.lines()
    assert not [line for line in master.lines() if line.startswith(("got", "after"))]
