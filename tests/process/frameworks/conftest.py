from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.runtime.conftest import stage
from tests.support.runtime.trials import Trial

__all__ = ["stage"]

# The frameworks' releases before the current ones: a folder that scripts/test fills and names.
EARLIER = os.environ.get("TRAINMASTER_EARLIER_FRAMEWORKS", "/var/cache/trainmaster/earlier-frameworks")
# `USE_TF`: Transformers 4 would find TensorFlow, and refuse its Keras 3.
EARLIER_RELEASES = {"PYTHONPATH": EARLIER, "USE_TF": "0"}
earlier = pytest.mark.skipif(
    not os.path.isdir(EARLIER), reason="no earlier releases of frameworks: set TRAINMASTER_EARLIER_FRAMEWORKS"
)


@pytest.fixture
def trial(stage: Any, tmp_path: Path) -> Callable[..., Trial]:
    """`trial(script, python=..., **more)`: a trial that trains with a framework, in real jobs."""
    number = 0

    def make(script: str, **more: Any) -> Trial:
        nonlocal number
        number += 1
        return Trial(stage, tmp_path / f"trial{number}", script, **more)

    return make
