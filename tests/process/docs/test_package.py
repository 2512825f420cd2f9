"""The wheel and the source archive: built, installed where nothing else is, and used."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from trainmaster.version import VERSION

ROOT = Path(__file__).parents[3]
CLEAN = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=CLEAN, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def build(source: Path, into: Path) -> tuple[Path, Path]:
    """The wheel and the source archive of a tree."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", into, cwd=source)
    (wheel,), (archive,) = into.glob("*.whl"), into.glob("*.tar.gz")
    return wheel, archive


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    subprocess.run(["bash", ROOT / "scripts/docs"], check=True)  # the wheel takes the documentation's site along
    return build(ROOT, tmp_path_factory.mktemp("built"))


def test_the_source_archive_makes_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, archive = built
    run("tar", "--extract", "--gzip", "--file", archive, cwd=tmp_path)
    again, _ = build(tmp_path / f"trainmaster-{VERSION}", tmp_path / "again")
    assert names(again) == names(wheel)


def test_the_wheel_holds_all_that_is_no_python_too(built: tuple[Path, Path]) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "trainmaster").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files <= names(built[0])
    assert "trainmaster/guide/search/search_index.json" in files


def test_the_wheel_works_where_nothing_else_is(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Its dependencies come as it names them, in the versions that the scripts pin."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    pinned = tmp_path / "pinned.txt"
    lines = (ROOT / "requirements" / "demo.txt").read_text().splitlines()
    pinned.write_text("\n".join(line.rstrip("\\ ") for line in lines if "==" in line))
    run(programs / "python", "-m", "pip", "install", "--quiet", "--constraint", pinned, built[0], cwd=tmp_path)
    assert VERSION in run(programs / "det", "--version", cwd=tmp_path)
    assert "serve" in run(programs / "trainmaster", "--help", cwd=tmp_path)
    (tmp_path / "master.yaml").write_text("port: 8080\nresource_manager: {type: local}\n")
    run(programs / "trainmaster", "config", "check", "master.yaml", cwd=tmp_path)
    assert (
        run(programs / "python", "-c", "import trainmaster.master.app, trainmaster; print('ok')", cwd=tmp_path)
        == "ok\n"
    )
