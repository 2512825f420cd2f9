"""What the documentation shows is true: files are read, programs run, commands do what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.support.master import MasterProcess, files, make_folder, remove_folder, serving, wait_for
from tests.support.pages import LANGUAGES, PAGES, ROOT, USER, Example, all_examples, examples
from tests.support.visible_plugins import visible, write_metadata
from trainmaster.cli import admin
from trainmaster.config.experiment import ExperimentConfig, parse_experiment
from trainmaster.config.master import MasterConfig, parse_master
from trainmaster.config.messages import ConfigError

LOCAL = "resource_manager: {type: local, slots: 4, poll_interval: 0.3}\n"
OPEN = {
    "entrypoint": "python3 train.py",
    "searcher": {"name": "single", "metric": "error"},
    "checkpoint_storage": {"type": "shared_fs", "host_path": "/shared"},
}
"""Fills what an example that shows a part of an experiment leaves open."""
LONGEST = 250  # lines of a page
SYSTEM = {"git", "sudo", "systemctl", "pg_dump", "python3", "pip", "tar", ".", "curl", "mkdir", "export", "sed"}
DET = re.compile(r"(\w+=\$\()?det ")
"""A command line that runs det."""


@pytest.fixture(scope="module", autouse=True)
def example_plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """docs/plugin-example, as if it were installed."""
    source, folder = ROOT / "docs" / "plugin-example", tmp_path_factory.mktemp("metadata")
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in named.items())
        for group, named in project["entry-points"].items()
    ]
    write_metadata(folder, project["name"], "".join(points))
    with visible(source, folder):
        yield


@pytest.mark.parametrize("page", PAGES)
def test_every_code_fence_names_known_language(page: str) -> None:
    assert [str(e) for e in examples(page) if e.language not in LANGUAGES] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short(page: str) -> None:
    assert len((ROOT / page).read_text().splitlines()) < LONGEST


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [t for t in targets if not ((ROOT / page).parent / t).exists()] == []


@pytest.mark.parametrize("example", all_examples("yaml"), ids=str)
def test_yaml_is_a_configuration(example: Example) -> None:
    keys = set(yaml.safe_load(example.text))
    if not all(map(ExperimentConfig.has, keys)):
        assert keys <= set(MasterConfig.model_fields), example
        assert parse_master(example.text, source=str(example)).warnings == []
    else:
        defaults = [] if "searcher" in keys and "entrypoint" in keys else [OPEN]
        storage = [{"checkpoint_storage": OPEN["checkpoint_storage"]}]
        parse_experiment(example.text, source=str(example), defaults=[*defaults, *storage])


@pytest.mark.parametrize("page", ["README.md", "docs/user.md"])
def test_documented_config_error_matches_actual_message(page: str) -> None:
    (shown,) = [e.text.strip() for e in examples(page) if e.language == "text" and e.text.startswith("search.yaml:")]
    (file,) = [e.text for e in examples(page) if e.file == "search.yaml"]
    with pytest.raises(ConfigError) as caught:
        parse_experiment(file.replace("max_restarts", "max_restart"), source="search.yaml", defaults=[OPEN])
    assert str(caught.value) == shown


@pytest.mark.parametrize("example", all_examples("toml"), ids=str)
def test_toml_is_toml(example: Example) -> None:
    assert tomllib.loads(example.text) != {}


@pytest.mark.parametrize("example", all_examples("python"), ids=str)
def test_python_compiles(example: Example) -> None:
    compile(example.text, str(example), "exec")


@pytest.mark.parametrize("example", all_examples("bash"), ids=str)
def test_commands_exist(example: Example) -> None:
    subprocess.run(["bash", "-n"], input=example.text, text=True, check=True)
    for line in example.commands:
        words = shlex.split(line, comments=True)
        if words[0] == "trainmaster":
            args = admin._parser().parse_args(words[1:])
            assert callable(args.run), line
        elif words[0] == "bash":
            assert (ROOT / words[1]).is_file(), line
            assert subprocess.run(["bash", "-n", str(ROOT / words[1])], check=False).returncode == 0
        elif words[0].startswith("scripts/"):
            assert os.access(ROOT / words[0], os.X_OK), line
        else:
            program = words[0].rpartition("=$(")[2]  # of what a variable is set to
            assert program in SYSTEM or DET.match(line), line


@pytest.fixture
def process() -> Iterator[MasterProcess]:
    with serving(LOCAL) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize(
    "pages", [["README.md"], USER, ["docs/sdk.md"], ["docs/plugin.md"], ["docs/searcher-plugins.md"]], ids=" ".join
)
def test_pages_work_from_top_to_bottom(pages: Sequence[str], process: MasterProcess, tmp_path: Path) -> None:
    """Files are put down, `det` and other programs run in the pages' order, on a master of their own."""
    assert _follow([example for page in pages for example in examples(page)], process, tmp_path) > 0


@pytest.mark.slow
def test_commands_beside_the_web_page_tell_the_same(process: MasterProcess, tmp_path: Path) -> None:
    """On a master with one experiment."""
    client = process.client()
    training = (
        "from trainmaster import core\nwith core.init() as c: c.train.report_validation_metrics(1, {'error': 1})\n"
    )
    config = "entrypoint: python3 train.py\nsearcher: {name: single, metric: error}\nresources: {slots_per_trial: 1}\n"
    made = client.create_experiment(config, files(train__py=training))
    wait_for(lambda: client.experiment(made.id).ended_for_good, "the experiment to end")
    shown = [example for page in PAGES if page.startswith("docs/webui") for example in examples(page)]
    assert _follow(shown, process, tmp_path) == len([one for one in shown if one.language == "bash"]) >= 6


def test_the_folder_of_images_is_looked_after_as_it_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands that need neither a registry nor a builder."""
    shown = [
        line for example in examples("docs/admin/images.md") for line in example.commands if "image" in line.split()[:2]
    ]
    ran = [line for line in shown if line.split()[2] in ("list", "prune")]
    assert len(ran) == 2
    for line in ran:
        assert admin.main(line.replace("/shared/images", str(tmp_path)).split()[1:]) == 0
    assert "0 MB in 0 images." in capsys.readouterr().out


def test_access_works_as_it_is_shown(tmp_path: Path) -> None:
    """The page about users and roles, on a master with its configuration."""
    shown = examples("docs/admin/users.md")
    (config,) = [example.text for example in shown if example.language == "yaml"]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "ada.password").write_text("Correct-horse-1\n")
    folder = make_folder()
    process = MasterProcess(folder, config + LOCAL)
    process.start()
    try:
        assert _follow(shown, process, tmp_path, user="admin") == 2
    finally:
        process.clean_up()
    errors = process.errors()
    remove_folder(folder)
    assert errors == []


def _follow(shown: Sequence[Example], process: MasterProcess, tmp_path: Path, user: str = "") -> int:
    """Do what the examples say, in their order. The number of those that were run."""
    (tmp_path / "bin").mkdir()
    det = tmp_path / "bin" / "det"
    det.write_text(f'#!/bin/sh\nexec {sys.executable} -m trainmaster.cli.det "$@"\n')
    det.chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DET_")}
    environment |= {
        "PATH": f"{det.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "DET_MASTER": process.url,
        "DET_PASS": process.password,
        "PYTHONPATH": str(ROOT),
    }
    if user:
        environment["DET_USER"] = user
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    ran = 0
    for example in shown:
        if example.file:
            (work / example.file).write_text(example.text)
            continue
        if example.language == "python":
            command = [sys.executable, "-W", "error", "-c", example.text]
        elif example.language == "bash" and all(DET.match(line) for line in example.commands):
            command = ["bash", "-euo", "pipefail", "-c", example.text]
        else:
            continue
        done = subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{example}:\n{example.text}\n{done.stdout}\n{done.stderr}"
        ran += 1
    return ran
