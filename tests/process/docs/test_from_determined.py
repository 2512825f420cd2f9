"""The way from Determined, as its page shows it: the published client, an old master and a fresh one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.e2e.conftest import LOCAL
from tests.support.master import MasterProcess, serving
from tests.support.pages import Example, examples
from tests.support.reference import reference

PAGE = "docs/from-determined.md"
NOT_HERE = "trainmaster doctor"
"""It looks at the site of the page's configuration; `tests/unit/security/test_doctor.py` runs it on sites of the
tests."""


@pytest.fixture(scope="module")
def old() -> Iterator[MasterProcess]:
    """Another master that speaks the API; Determined's own cannot be had here."""
    with serving(LOCAL) as process:
        admin = process.client("admin")
        ada = admin.accounts.create("ada", "Correct-horse-1")
        linked = {"agentUid": 1001, "agentUser": "ada", "agentGid": 1001, "agentGroup": "ada"}
        admin.accounts.edit(ada["id"], agentUserGroup=linked)
        workspace = admin.organisation.create_workspace("vision")
        admin.organisation.create_project(workspace["id"], "digits")
        admin.registry.create_template("small", {"max_restarts": 1}, workspace["id"])
        yield process


@pytest.fixture(scope="module")
def new() -> Iterator[MasterProcess]:
    with serving(LOCAL) as process:
        yield process


def test_the_way_works_from_top_to_bottom(old: MasterProcess, new: MasterProcess, tmp_path: Path) -> None:
    try:
        installed = reference.environment()
    except reference.NoReference as reason:
        pytest.skip(f"no reference client: {reason}")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DET_", "PYTHON"))}
    environment |= {"PATH": f"{installed / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    environment |= {"OLD_MASTER": old.url, "OLD_PASS": old.password, "NEW_MASTER": new.url, "NEW_PASS": new.password}
    script = "\n".join(map(_step, examples(PAGE)))
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Consider upgrading" not in done.stderr

    admin = new.client("admin")
    linked = admin.accounts.user("ada").get("agentUserGroup") or {}
    assert linked.get("agentUid") == 1001
    passwords = dict(line.split() for line in (tmp_path / "first-passwords.txt").read_text().splitlines())
    new.password = passwords["ada"]
    assert new.client("ada").accounts.me()["username"] == "ada"


def _step(example: Example) -> str:
    """What a person does with an example of the page, as lines of a shell script."""
    if example.file:
        return f"cat > {example.file} <<'END OF FILE'\n{example.text}END OF FILE\n"
    runs = example.language == "bash" and not example.text.startswith(NOT_HERE)
    return example.text if runs else ""
