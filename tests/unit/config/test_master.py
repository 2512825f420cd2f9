"""The master configuration and what it gives to experiments."""

# ruff: noqa: E501 - tables of texts and the errors about them

from __future__ import annotations

import os
from typing import Any

import pytest

from trainmaster.config.experiment import parse_experiment
from trainmaster.config.master import container_settings, parse_master, task_container_fragments
from trainmaster.config.messages import ConfigError
from trainmaster.dispatchers.local.options import LocalOptions
from trainmaster.dispatchers.slurm.options import SlurmOptions
from trainmaster.dispatchers.slurm.resources import GpuDialect
from trainmaster.master.services.scheduling.job_spec import image_for
from trainmaster.master.values.configs import StoredConfig

EXPERIMENT = "entrypoint: x\nsearcher: {name: single, metric: m}\n"

FULL = """
port: 0
host: 0.0.0.0
cluster_name: site
db: {host: db, user: u, password_file: /secret, name: tm}
data: /var/lib/tm
master_url: https://login1:8080
security: {initial_user_password: pw, tls: {cert: /c, key: /k}}
log: {level: debug, color: false}
resource_manager:
  type: slurm
  name: big
  job_storage_root: /scratch/jobs
  slots_per_node: 2
  poll_interval: 3
  commands: {sbatch: /opt/slurm/bin/sbatch}
  partition_overrides:
    GPU:
      description: the fast ones
      task_container_defaults:
        image: partition
        bind_mounts: [{host_path: /p, container_path: /data}]
        slurm: {sbatch_args: [--partition-arg]}
        startup_hook: module load cuda
additional_resource_managers:
  - {type: local, cluster_name: here, slots: 3}
resource_pools:
  - pool_name: long
    description: gpu for days
    provider: {type: hpc, partition: gpu}
    task_container_defaults: {work_dir: /w, slurm: {sbatch_args: [--time=5-0]}, environment_variables: [A=pool]}
task_container_defaults:
  preemption_timeout: 60
  shm_size_bytes: 1 GiB
  network_mode: host
  image: site
  environment_variables: {cuda: [A=site]}
  startup_hook: . /etc/profile
  log_policies: [{name: ECC Error, pattern: null}]
checkpoint_storage: {type: shared_fs, host_path: /ckpt}
"""


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_master(text, source="m.yaml")
    return [str(complaint).removeprefix("m.yaml:") for complaint in caught.value.complaints]


def test_an_empty_file_is_a_local_master() -> None:
    config = parse_master("")
    assert (config.port, config.host, config.db, config.data, config.master_url) == (
        8080,
        "127.0.0.1",
        None,
        None,
        None,
    )
    assert config.resource_manager == LocalOptions(type="local", slots=os.cpu_count() or 1)
    assert (config.log.level, config.security.initial_user_password, config.warnings) == ("info", None, [])


def test_a_full_file() -> None:
    config = parse_master(FULL)
    assert config.warnings == []
    slurm, local = config.managers
    assert isinstance(slurm, SlurmOptions)
    assert isinstance(local, LocalOptions)
    assert (slurm.cluster_name, slurm.container_run_type, slurm.poll_interval) == ("big", "apptainer", 3)
    assert slurm.commands.sbatch == "/opt/slurm/bin/sbatch"
    assert (local.slots, local.cluster_name) == (3, "here")
    assert config.db is not None
    assert (config.db.port, config.db.password_file) == (5432, "/secret")
    assert config.resource_pools[0].provider is not None
    assert config.resource_pools[0].provider.partition == "gpu"


def test_slurm_defaults() -> None:
    (manager,) = parse_master("resource_manager: {type: slurm}").managers
    assert {key: value for key, value in manager.settings().items() if value not in ({}, [], "")} == {
        "type": "slurm",
        "cluster_name": "default",
        "container_run_type": "apptainer",
        "tres_supported": True,
        "gres_supported": True,
        "job_project_source": "project",
        "job_path": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "python": "python3",
        "bash": "/bin/bash",
        "reader": "commands",
        "poll_interval": 10,
        "pools_cached_for": 60,
        "submits_per_second": 2,
        "submit_burst": 20,
        "submit_deadline": 150,
        "query_deadline": 60,
        "gpu_libraries": True,
        "walltime_grace": 120,
        "external_jobs": True,
        "impersonation": "none",
        "helper": "/usr/local/libexec/trainmaster-helper",
        "require_user_link": False,
    }


def test_meaningless_keys_are_accepted_with_warning() -> None:
    config = parse_master(
        "telemetry: {enabled: false}\nsecurity: {ssh: {}}\nresource_manager:\n  type: slurm\n  auth_file: /a\n"
        "  port: 8181\n  gres_supported: false\n  security: {tls: {enabled: true}}\nlogging: {type: default}\n"
    )
    launcher = "does nothing: it belongs to Determined's launcher, which is not needed; remove it"
    assert config.warnings == [
        "master.yaml:1: telemetry: means nothing here; remove it",
        "master.yaml:2: security.ssh: means nothing here; remove it",
        f"master.yaml:5: resource_manager.auth_file: {launcher}",
        f"master.yaml:6: resource_manager.port: {launcher}",
        "master.yaml:7: resource_manager.gres_supported: false makes tres_supported false too",
        f"master.yaml:8: resource_manager.security: {launcher}",
        "master.yaml:9: logging: means nothing here; remove it",
    ]
    assert isinstance(config.resource_manager, SlurmOptions)
    assert config.resource_manager.dialect("any") is GpuDialect.NONE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prot: 1", ["1: prot: unknown key; did you mean port?"]),
        ("port: 70000", ["1: port: must be at most 65535, found 70000"]),
        ("data: here", ["1: data: must be an absolute path (it starts with /), found 'here'"]),
        ("db: {host: h}", ["1: db.user: is required", "1: db.name: is required"]),
        ("db: {host: h, user: u, name: n, password: x, password_file: /x}",
         ["1: db.password_file: cannot be set together with password; keep one"]),
        ("resource_manager: slurm", ["1: resource_manager: a mapping (key: value) is wanted, found the text 'slurm'"]),
        ("resource_manager: {slots: 1}",
         ["1: resource_manager.type: is required: the name of an installed dispatcher (docker, local, pbs, slurm)"]),
        ("resource_manager: {type: local, slotz: 1}", ["1: resource_manager.slotz: unknown key; did you mean slots?"]),
        ("resource_manager: {type: slurm, slot_type: gpu}",
         ["1: resource_manager.slot_type: must be one of cpu, cuda, rocm; found the text 'gpu'; did you mean cpu?"]),
        ("resource_manager: {type: slurm, name: a, cluster_name: b}",
         ["1: resource_manager.name: is the old name of cluster_name; keep cluster_name only"]),
        ("resource_manager: {type: slurm, apptainer_image_root: /a, singularity_image_root: /b}",
         ["1: resource_manager.singularity_image_root: is the same as apptainer_image_root; keep one"]),
        ("resource_manager: {type: slurm, job_project_source: lable}",
         ["1: resource_manager.job_project_source: must be project, workspace, label or label:PREFIX, found 'lable'"]),
        ("resource_manager:\n  type: slurm\n  partition_overrides:\n    gpu:\n      task_container_defaults:\n        slurm: {sbatch_arg: []}",
         ["6: resource_manager.partition_overrides.gpu.task_container_defaults.slurm.sbatch_arg: unknown key; did you mean sbatch_args?"]),
        ("resource_manager: {type: slurm, commands: {sbatch: sbatch}}",
         ["1: resource_manager.commands.sbatch: must be an absolute path (it starts with /), found 'sbatch'"]),
        ("additional_resource_managers:\n- {type: local}",
         ["2: additional_resource_managers[0].cluster_name: there is another resource manager called 'default'; give each its own name"]),
        ("additional_resource_managers:\n- {type: local, cluster_name: a}\n- {type: local, cluster_name: b, poll_interval: 0}",
         ["3: additional_resource_managers[1].poll_interval: must be above 0, found 0"]),
        ("resource_pools:\n- {pool_name: p, provider: {type: aws, partition: x}}",
         ["2: resource_pools[0].provider.type: must be one of hpc; found the text 'aws'"]),
        ("resource_pools:\n- {pool_name: p, provider: {type: hpc, partition: x}}\n- {pool_name: p, provider: {type: hpc, partition: x}}",
         ["3: resource_pools[1].pool_name: there is another pool called 'p'"]),
        ("task_container_defaults: {imag: x}", ["1: task_container_defaults.imag: unknown key; did you mean image?"]),
        ('task_container_defaults: {slurm: {sbatch_args: ["a\\nb"]}}',
         ["1: task_container_defaults.slurm.sbatch_args[0]: must be a single line, without line breaks and tabs"]),
        ("log: {level: loud}", ["1: log.level: must be one of trace, debug, info, warn, warning, error, fatal; found the text 'loud'"]),
    ],
)  # fmt: skip
def test_errors_are_reported_with_their_lines(text: str, expected: list[str]) -> None:
    assert complaints(text) == expected


def experiment(pool: str, more: str = "") -> dict[str, Any]:
    config = parse_master(FULL)
    return parse_experiment(EXPERIMENT + more, defaults=task_container_fragments(config, pool)).to_json()


def test_pool_gets_its_own_then_partition_then_site_defaults() -> None:
    found = experiment("long", "slurm: {sbatch_args: [--mine]}\nenvironment: {environment_variables: [A=me]}\n")
    assert found["slurm"]["sbatch_args"] == ["--partition-arg", "--time=5-0", "--mine"]
    assert found["environment"]["image"]["cuda"] == "partition"
    assert found["environment"]["environment_variables"]["cuda"] == ["A=site", "A=pool", "A=me"]
    assert found["bind_mounts"][0]["container_path"] == "/data"
    assert found["checkpoint_storage"]["host_path"] == "/ckpt"


def test_inner_section_overrides_only_what_it_names() -> None:
    for pool in ("long", "gpu", "GPU", "other", ""):
        found = experiment(pool)
        assert found["preemption_timeout"] == 60
        assert found["resources"]["shm_size"] == 2**30
        settings = container_settings(parse_master(FULL), pool)
        assert (settings.shm_size_bytes, settings.network_mode) == (2**30, "host")


def test_partitions_match_any_case_on_their_own_cluster() -> None:
    assert experiment("gpu")["environment"]["image"]["cpu"] == "partition"
    assert experiment("cpu")["environment"]["image"]["cpu"] == "site"
    config = parse_master(FULL)
    on_other = task_container_fragments(config, "gpu", "here")
    assert all(fragment.get("environment", {}).get("image", {}).get("cpu") != "partition" for fragment in on_other)


def test_each_slot_type_has_image_by_site_and_partition() -> None:
    text = """
resource_manager:
  type: slurm
  partition_overrides:
    gpu: {task_container_defaults: {image: {cuda: gpu-partition}}}
    amd: {task_container_defaults: {image: {rocm: amd-partition}}}
task_container_defaults: {image: {cpu: site-cpu, cuda: site-cuda, rocm: site-rocm}}
checkpoint_storage: {type: shared_fs, host_path: /ckpt}
"""
    config = parse_master(text)

    def images(pool: str, more: str = "") -> list[str]:
        experiment = parse_experiment(EXPERIMENT + more, defaults=task_container_fragments(config, pool))
        found = StoredConfig.of(experiment)
        return [image_for(found, devices) for devices in ("cpu", "cuda", "rocm")]

    assert images("gpu") == ["site-cpu", "gpu-partition", "site-rocm"]
    assert images("amd") == ["site-cpu", "site-cuda", "amd-partition"]
    assert images("other", "environment: {image: {cuda: mine}}\n") == ["site-cpu", "mine", "site-rocm"]
    assert images("gpu", "environment: {image: mine}\n") == ["mine", "mine", "mine"]


def test_startup_hooks_run_from_the_site_to_the_pool() -> None:
    settings = container_settings(parse_master(FULL), "long")
    assert settings.startup_hooks == [". /etc/profile", "module load cuda"]
    assert settings.work_dir == "/w"


def test_the_defaults_without_any_configuration() -> None:
    (only,) = task_container_fragments(parse_master(""), "any")
    found = parse_experiment(EXPERIMENT + "checkpoint_storage: {type: shared_fs, host_path: /c}\n", defaults=[only])
    assert found.preemption_timeout == 3600
    assert [policy.name for policy in found.log_policies] == ["CUDA OOM", "ECC Error"]
    settings = container_settings(parse_master(""), "any")
    assert (settings.shm_size_bytes, settings.network_mode) == (4 * 2**30, "")


def test_policy_without_pattern_disables_inherited_one() -> None:
    policies = {policy["name"]: policy["pattern"] for policy in experiment("other")["log_policies"]}
    assert policies == {"ECC Error": None, "CUDA OOM": ".*CUDA out of memory.*"}


@pytest.mark.parametrize(
    ("text", "context", "whole"),
    [("", 95, 159), ("limits: {context: 300}", 300, 433), ("limits: {context: 30, request: 41}", 30, 41)],
)
def test_a_request_may_bring_the_largest_context(text: str, context: int, whole: int) -> None:
    limits = parse_master(text).limits
    assert (limits.context, limits.request_mb) == (context, whole)


def test_request_limit_below_context_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r":2: limits\.request: must be at least 127, which 95 MB of files need"):
        parse_master("limits:\n  request: 100\n")
