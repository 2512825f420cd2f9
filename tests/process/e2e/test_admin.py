"""`trainmaster serve`, `db upgrade` and `doctor` from the command line."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.process.e2e.conftest import LOCAL
from tests.support import trainings
from tests.support.cluster.daemons import started_at
from tests.support.master import MasterProcess, ended_as, files, only_trial, serving, wait_for
from trainmaster.client.errors import NotLoggedIn
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport
from trainmaster.config.master import parse_master
from trainmaster.master import site
from trainmaster.master.db import migrate


def trainmaster(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key != "TRAINMASTER_INITIAL_PASSWORD"}
    command = [sys.executable, "-m", "trainmaster.cli.admin", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env={**kept, **environment}
    )


def test_a_folder_that_another_master_holds_is_refused(local: MasterProcess) -> None:
    done = trainmaster("serve", "--data", str(local.data), "--port", "0")
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"process {local.pid} on" in done.stderr
    assert "choose another folder with --data" in done.stderr
    assert "Traceback" not in done.stderr


def test_port_in_use_error_names_port(local: MasterProcess, tmp_path: Path) -> None:
    done = trainmaster("serve", "--data", str(tmp_path / "data"), "--port", str(local.port))
    assert done.returncode == 1
    assert f"127.0.0.1:{local.port} cannot be used" in done.stderr
    assert "--port" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot: 8081\n", ":1: prot: unknown key; did you mean port?"),
        ("resource_manager:\n  type: local\n  slots: many\n", ":3: resource_manager.slots:"),
        ("resource_manager: {type: slrum}\n", "there is no dispatcher 'slrum'. Did you mean 'slurm'?"),
        ("port: [\n", ":2:"),
    ],
)
def test_invalid_configuration_is_reported_with_its_line(own_master: MasterProcess, text: str, words: str) -> None:
    own_master.config.write_text(text)
    done = trainmaster("serve", "--config", str(own_master.config), "--data", str(own_master.data), "--port", "0")
    assert done.returncode == 1
    assert words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_initial_passwords_are_generated_into_private_file(own_master: MasterProcess) -> None:
    own_master.password = ""
    own_master.start()
    left = own_master.data / "initial-password"
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    transport = Transport(own_master.url)
    try:
        passwords = dict(line.split(": ") for line in left.read_text().splitlines())
        assert set(passwords) == {"admin", "determined"}
        for user, password in passwords.items():
            assert Master(transport).login(user, password)
        with pytest.raises(NotLoggedIn):
            Master(transport).login("admin", passwords["determined"])
        with pytest.raises(NotLoggedIn):
            Master(transport).login("admin", "")
    finally:
        transport.close()


def test_a_stopped_master_leaves_nothing_behind(own_master: MasterProcess) -> None:
    own_master.start()
    server = int((own_master.data / "pg" / "postmaster.pid").read_text().split()[0])
    own_master.stop()
    assert own_master.returncode == 0
    assert not (own_master.data / "pg" / "postmaster.pid").exists(), "PostgreSQL was not stopped in order"
    wait_for(lambda: started_at(server) is None, "the end of PostgreSQL")
    assert '"released": true' in (own_master.data / "master.lock").read_text()


def test_the_database_is_upgraded_without_a_master(own_master: MasterProcess) -> None:
    done = trainmaster("db", "upgrade", "--data", str(own_master.data))
    newest = migrate.revisions()[-1]
    assert (done.returncode, done.stdout) == (0, f"The database is at revision {newest}.\n"), done.stderr
    own_master.start()
    assert own_master.client().experiments() == []


def test_the_doctor_finds_nothing_wrong_where_nothing_is(own_master: MasterProcess) -> None:
    done = trainmaster("doctor", "--config", str(own_master.config), "--data", str(own_master.data))
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("No problems found.\n")
    assert "pool default: 4 cpu slots" in done.stdout
    assert not (own_master.data / "pg").exists(), "the doctor changes nothing"


def test_doctor_names_faults_and_remedies(own_master: MasterProcess, tmp_path: Path) -> None:
    own_master.config.write_text(
        LOCAL.replace("type: local", "type: slurm").replace("slots: 4, ", "")
        + "db: {host: 127.0.0.1, port: 1, user: u, name: n, password: p}\n"
        + "checkpoint_storage: {type: shared_fs, host_path: /proc/nowhere}\n"
    )
    arguments = ["--config", str(own_master.config), "--data", str(own_master.data)]
    done = trainmaster("doctor", *arguments, PATH=str(tmp_path))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if line.startswith("WRONG")]
    assert any("n on 127.0.0.1:1 does not answer" in line for line in wrong)
    assert any("/proc/nowhere cannot be written" in line for line in wrong)
    assert any("cluster default" in line for line in wrong)
    assert all(lines[lines.index(line) + 1].lstrip().startswith("->") for line in wrong)
    assert "Traceback" not in done.stdout + done.stderr


def test_unavailable_database_is_reported_without_traceback(own_master: MasterProcess, tmp_path: Path) -> None:
    arguments = ["--config", str(own_master.config), "--data", str(own_master.data), "--port", "0"]
    done = trainmaster("serve", *arguments, TRAINMASTER_PG_BIN=str(tmp_path))
    assert done.returncode == 1
    assert "apt install postgresql" in done.stderr
    own_master.config.write_text(LOCAL + "db: {host: 127.0.0.1, port: 1, user: u, name: n, password: p}\n")
    away = trainmaster("serve", *arguments)
    assert away.returncode == 1
    assert "The database does not answer" in away.stderr
    assert "Traceback" not in done.stderr + away.stderr


def test_a_certificate_that_is_not_there_is_refused(own_master: MasterProcess) -> None:
    own_master.config.write_text(LOCAL + "security: {tls: {cert: /a.pem, key: /a.key}}\n")
    done = trainmaster("serve", "--config", str(own_master.config), "--data", str(own_master.data), "--port", "0")
    assert done.returncode == 1
    assert "security.tls.cert: /a.pem cannot be read: No such file or directory." in done.stderr


def test_jobs_get_the_address_that_their_cluster_names() -> None:
    config = parse_master("port: 8081\nresource_manager: {type: slurm, master_host: login2, job_storage_root: /x}\n")
    assert site.url_of(config, config.resource_manager) == "http://login2:8081"
    assert site.url_of(parse_master(""), parse_master("").resource_manager) == ""


def test_config_check_describes_configuration(tmp_path: Path) -> None:
    config = tmp_path / "master.yaml"
    config.write_text(
        "resource_manager: {type: slurm, cluster_name: big, default_compute_resource_pool: gpu}\n"
        "additional_resource_managers: [{type: local, pool_name: here}]\n"
        "resource_pools: [{pool_name: careful, provider: {type: hpc, partition: gpu}}]\n"
        "telemetry: {enabled: true}\n"
    )
    done = trainmaster("config", "check", str(config))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "cluster big: slurm, containers by apptainer, default pool gpu",
        "cluster default: local, no containers",
        "pool careful: partition gpu",
        "The configuration is right. `trainmaster doctor` also asks the clusters.",
    ]
    assert done.stderr == f"warning: {config}:4: telemetry: means nothing here; remove it\n"


TWINS = """
resource_manager: {type: local, cluster_name: alps, slots: 4, poll_interval: 0.3}
additional_resource_managers: [{type: local, cluster_name: jura, slots: 2}]
"""
CALLED = "The pool default of jura is called jura.default, because alps has a pool of that name"


def test_equal_pool_names_are_reported_everywhere(tmp_path: Path) -> None:
    config = tmp_path / "master.yaml"
    config.write_text(TWINS)
    assert CALLED in trainmaster("config", "check", str(config)).stdout
    assert CALLED in trainmaster("doctor", "--config", str(config), "--data", str(tmp_path / "data")).stdout
    with serving(TWINS) as process:
        pools = process.client().pools()
        assert [(pool["name"], pool["clusterName"]) for pool in pools] == [
            ("default", "alps"),
            ("jura.default", "jura"),
        ]
        assert "(Pool default of jura.)" in pools[1]["description"]
        status, health = health_of(process)
        assert (status, health["status"]) == (200, "up")
        assert any(CALLED in note for note in health["resource_managers"][1]["notes"])
        config_text = trainings.experiment(epochs=1, keys={"resources": {"resource_pool": "jura.default"}})
        number = process.client().create_experiment(config_text, files(train__py=trainings.COUNTING)).id
        ended_as(process.client(), number, "COMPLETED")
        task = process.client().task(only_trial(process.client(), number).task_id)
        assert task["allocations"][0]["resourcePool"] == "jura.default"


def test_unreachable_cluster_makes_master_degraded(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
    away.chmod(0o755)
    programs = ", ".join(f"{name}: {away}" for name in ("sbatch", "squeue", "sinfo", "scontrol", "scancel", "sacct"))
    slurm = f"{{type: slurm, cluster_name: far, container_run_type: none, commands: {{{programs}}}}}"
    with serving(f"{LOCAL}additional_resource_managers: [{slurm}]\n") as process:
        process.client().pools()
        status, health = health_of(process)
        assert (status, health["status"], health["database"]) == (200, "degraded", "up")
        here, far = health["resource_managers"]
        assert here["status"] == "up"
        assert far["status"].startswith("down: ")
    with serving(f"resource_manager: {slurm}\n") as process:
        process.client().pools()
        status, health = health_of(process)
        assert (status, health["status"]) == (503, "down")


def health_of(process: MasterProcess) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{process.url}/health") as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            b"resource_manager:\n  type: slurm\n  tres_suported: true\n",
            ":3: resource_manager.tres_suported: unknown key",
        ),
        (b"resource_manager: {type: slurm, poll_interval: 0}\n", ":1: resource_manager.poll_interval: "),
        (b"resource_manager: {type: slurm}\nadditional_resource_managers: [{type: slurm}]\n", ":2: "),
        (b"resource_manager: {type: slrum}\n", "Did you mean 'slurm'?"),
        (b"cluster_name: \xff\n", "is not UTF-8 text (byte 14)"),
    ],
)
def test_config_check_names_error_and_its_place(tmp_path: Path, content: bytes, words: str) -> None:
    config = tmp_path / "master.yaml"
    config.write_bytes(content)
    done = trainmaster("config", "check", str(config))
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"{config}" in done.stderr
    assert words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
