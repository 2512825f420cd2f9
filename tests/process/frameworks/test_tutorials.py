"""Scripts as the frameworks' tutorials have them, with the lines changed that docs/user/training-code.md shows."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest

from tests.process.launchers.conftest import find_python

ROOT = Path(__file__).resolve().parents[3]
TUTORIALS = ROOT / "tests" / "data" / "tutorials"
PAGE = ROOT / "docs" / "user" / "training-code.md"
PYTHON = find_python("transformers", "TRAINMASTER_TORCH_PYTHON", "torch-venv") or ""
# Lines that are new, and a metric that each reports once it has them.
CHANGES = {
    "transformers": (3, "eval_accuracy"),
    "lightning": (3, "validation_error"),
    "keras": (2, "val_accuracy"),
    "accelerate": (6, "loss"),
    "pytorch": (17, "loss"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_page_shows_what_changes(name: str) -> None:
    before, after = ((TUTORIALS / file).read_text().splitlines() for file in (f"{name}.py", f"{name}_changed.py"))
    lines = [line.rstrip() for line in difflib.unified_diff(before, after, f"{name}.py", "train.py", n=1, lineterm="")]
    assert "```diff\n" + "\n".join(lines) + "\n```" in PAGE.read_text()
    assert sum(line.startswith("+") and not line.startswith("+++") for line in lines) == CHANGES[name][0]


@pytest.mark.skipif(not PYTHON, reason="no Python with the frameworks: set TRAINMASTER_TORCH_PYTHON")
@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_the_changed_script_trains(trial: Any, name: str) -> None:
    script = (TUTORIALS / f"{name}_changed.py").read_text()
    attempt = trial(script, python=PYTHON, environment={"KERAS_BACKEND": "jax"}).run()
    assert attempt.status == 0, attempt.output
    metric = CHANGES[name][1]
    group = "training" if metric == "loss" else "validation"
    assert [metric in metrics for _, metrics in attempt.metrics(group)] == [True] * 4
