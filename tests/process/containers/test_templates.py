"""Values in script templates: any value arrives as the same literal word."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import nodes

from trainmaster.templates import ControlCharacter, render, shell_words, template_names
from trainmaster.templates.render import FOLDER, environment

printable = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=60)


def outputs(name: str) -> Iterator[nodes.Expr]:
    """Every expression that a template prints."""
    tree = environment().parse((FOLDER / name).read_text())
    for output in tree.find_all(nodes.Output):
        yield from (part for part in output.nodes if not isinstance(part, nodes.TemplateData))


@pytest.mark.parametrize("name", template_names())
def test_every_output_of_every_template_is_quoted(name: str) -> None:
    for expression in outputs(name):
        assert isinstance(expression, nodes.Filter), f"{name}:{expression.lineno} prints a value without `| sh`"
        assert expression.name == "sh", f"{name}:{expression.lineno}: `sh` must be the last filter"


def test_there_are_templates_to_walk() -> None:
    assert len(list(template_names())) >= 5
    assert sum(len(list(outputs(name))) for name in template_names()) > 10


@settings(max_examples=50, deadline=None)
@given(st.lists(printable, min_size=1, max_size=5))
def test_bash_reads_quoted_words_back_unchanged(values: list[str]) -> None:
    done = subprocess.run(
        ["bash", "-c", f'printf "%s\\0" {shell_words(values)}'], capture_output=True, check=True, timeout=20
    )
    assert done.stdout.decode().split("\0")[:-1] == values


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b", "\x1b[0m", "\x7f", "tab\there"])
def test_control_characters_never_reach_a_script(text: str) -> None:
    with pytest.raises(ControlCharacter):
        shell_words(text)
    with pytest.raises(ControlCharacter):
        shell_words(["fine", text])


@pytest.mark.parametrize("value", [None, True, 1.5, {"a": 1}, {"a"}])
def test_only_words_are_values(value: object) -> None:
    with pytest.raises(TypeError):
        shell_words(value)


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("slurm_job.sh.j2", bash="/bin/bash")


@pytest.mark.parametrize("multi_node", [True, False])
@pytest.mark.parametrize("cpus", [0, 4])
@pytest.mark.parametrize("walltime", [0, 3600])
def test_job_scripts_are_bash(multi_node: bool, cpus: int, walltime: int) -> None:
    folder = Path("/jobs/o'clock $(id)")
    script = render(
        "slurm_job.sh.j2",
        job_folder=folder,
        bash="/bin/bash",
        walltime=walltime,
        multi_node=multi_node,
        cpus_per_task=cpus,
        locale=["LANG", "LC_ALL"],
    )
    subprocess.run(["bash", "-n"], input=script.encode(), check=True)
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash"
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[0] == "export SLURM_EXPORT_ENV=ALL"
    assert "umask 077" in commands
    assert f"cd {shlex.quote(str(folder))} || exit 1" in commands
    assert ("srun" in script.replace("inner srun", "")) is multi_node
    assert not re.search(r"^#SBATCH", script, re.MULTILINE)
    assert "--gres" not in script
    assert "--gpus" not in script
