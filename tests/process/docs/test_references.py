"""What docstrings and comments name exists: in backticks, and after "Raises"."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import trainmaster
from tests.support.pages import PAGES, ROOT
from tests.support.references import WORD, Package

OUTSIDE = frozenset({
    # programs and libraries
    "SshMachine", "ParamikoMachine", "after_flush", "deepspeed.initialize", "deepspeed.launcher.launch",
    "determined", "horovod.tensorflow", "horovod.torch", "ps",
    "Connection.send", "ModelCheckpoint", "accelerator.end_training", "prefetch_factor", "persistent_workers",
    "torch.float16",
    "timestamptz", "trainmaster", "trainmaster.searchers",
    # what Hugging Face's Trainer logs, and its arguments
    "compute_metrics", "eval_loss", "grad_norm", "learning_rate", "loss", "save_strategy", "val_loss",
    # values of configuration files and requests
    "basic", "experiment_id_filter.not_in", "invariant_config", "local", "previous", "STATE_ACTIVE", "yes",
    # files of a job, names of hyperparameters
    "hp.NAME", "hp.lr", "model.lr", "output.txt",
    # a command of `trainmaster`
    "doctor",
})  # fmt: skip
NO_PARTS = ("guide", "py.typed")  # what `scripts/docs` builds, and a mark for type checkers
FOR_DEVELOPERS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md")
SOURCE = '''
"""Reads `settings` of `Pump`; see `helper.turn` and `Pump.start`."""
import helper

class Stuck(Exception):
    """Raised by `Pump.start`."""

class Pump:
    def start(self, patience: float) -> None:
        """Waits `patience` seconds; then `stop()`.

        Raises:
            Stuck: it does not turn.
        """

    def stop(self) -> None:
        """Raises Stuck."""
        self.settings = helper.turn(speed=1)  # `maxSpeed` in `pump/helper.py`
'''


@pytest.fixture(scope="module")
def product() -> Package:
    return Package(Path(trainmaster.__file__).parent, OUTSIDE)


def test_names_in_backticks_exist(product: Package) -> None:
    assert product.broken_names() == []


def test_documented_exceptions_can_occur_in_module(product: Package) -> None:
    assert product.broken_raises() == []


@pytest.fixture(scope="module")
def repository() -> frozenset[str]:
    """Every path below the root and its ends, and every word of the tests, the scripts and the web page."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    words = set()
    for path in map(Path, listed):
        for place in (path, *path.parents):
            words |= {"/".join(place.parts[at:]) for at in range(len(place.parts))}
        if path.parts[0] in ("benchmarks", "scripts", "tests") or path.suffix in (".css", ".js", ".ts"):
            words |= set(WORD.findall((ROOT / path).read_text(errors="replace")))
    return frozenset(words)


@pytest.mark.parametrize("page", [page for page in PAGES if page in FOR_DEVELOPERS or "architecture/" in page])
def test_names_in_backticks_in_pages_for_developers_exist(
    product: Package, repository: frozenset[str], page: str
) -> None:
    assert product.broken_names_of((ROOT / page).read_text(), repository) == []


def test_the_overview_has_every_part_of_the_package() -> None:
    overview = (ROOT / "ARCHITECTURE.md").read_text()
    package = Path(trainmaster.__file__).parent
    parts = [path.name for path in package.iterdir() if path.name[0] not in "_." and path.name not in NO_PARTS]
    services = [path.parent.name for path in (package / "master" / "services").glob("*/__init__.py")]
    assert [part for part in parts if f"`{part}" not in overview] == []
    assert [service for service in services if f"`{service}`" not in overview] == []


def test_the_master_s_page_has_the_middleware_in_its_order() -> None:
    source = (ROOT / "trainmaster/master/http/stack.py").read_text()
    page = (ROOT / "docs/architecture/master.md").read_text()
    middleware = re.findall(r"\bMiddleware\((\w+)", source)
    assert len(middleware) > 5
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == middleware


def _broken(folder: Path, source: str) -> list[str]:
    (folder / "pump").mkdir()
    (folder / "pump" / "pump.py").write_text(source)
    (folder / "pump" / "helper.py").write_text("def turn(speed: int, max_speed: int = 0) -> None: ...\n")
    package = Package(folder / "pump")
    return [*package.broken_names(), *package.broken_raises()]


def test_true_references_pass(tmp_path: Path) -> None:
    assert _broken(tmp_path, SOURCE) == []


@pytest.mark.parametrize(
    ("true", "broken", "fault"),
    [
        ("patience: float", "deadline: float", "pump.py:10: patience"),
        ("def stop(", "def end(", "pump.py:10: stop()"),
        ("`helper.turn`", "`helper.twist`", "pump.py:2: helper.twist"),
        ("see `helper.turn` and `Pump.start`", "see `Pump.begin`", "pump.py:2: Pump.begin"),
        ("`maxSpeed`", "`minSpeed`", "pump.py:18: minSpeed"),
        ("`pump/helper.py`", "`pump/other.py`", "pump.py:18: pump/other.py"),
        ("            Stuck:", "            Jammed:", "pump.py:10: Jammed"),
        ('"""Raises Stuck.', '"""Raises ValueError or Jammed.', "pump.py:17: Jammed"),
    ],
)
def test_a_broken_reference_is_reported(tmp_path: Path, true: str, broken: str, fault: str) -> None:
    assert _broken(tmp_path, SOURCE.replace(true, broken)) == [fault]
