"""The `pbs` resource manager's section and the experiments' `pbs` section."""

from __future__ import annotations

import pytest

from trainmaster.config.experiment import parse_experiment
from trainmaster.config.master import parse_master, task_container_fragments
from trainmaster.config.messages import ConfigError
from trainmaster.dispatchers.base import Rejected
from trainmaster.dispatchers.pbs.options import HostStart, NodePlacement, PbsOptions
from trainmaster.dispatchers.pbs.parse import Format

FULL = """
resource_manager:
  type: pbs
  cluster_name: old
  gpu_resource: gpus
  place: free
  host_start: ssh
  query_format: json
  ended_listed_for: 300
  submit_deadline: 30
  slots_per_node: 4
  environment: {PBS_CONF_FILE: /etc/pbs-test.conf}
  commands: {qsub: /opt/pbs/bin/qsub}
  partition_overrides:
    GPU: {description: eight of them, slot_type: cuda, task_container_defaults: {image: /images/gpu.sif}}
"""


def test_dispatcher_reads_pbs_options_from_full_configuration() -> None:
    (options,) = parse_master(FULL).managers
    assert isinstance(options, PbsOptions)
    assert PbsOptions.read(options.settings()) == options
    assert (options.gpu_resource, options.place, options.host_start) == ("gpus", NodePlacement.FREE, HostStart.SSH)
    assert (options.query_format, options.ended_listed_for, options.submit_deadline) == (Format.JSON, 300, 30)
    assert options.node_size("other") == 4
    assert options.pool("gpu").description == "eight of them"
    assert options.commands.qsub == "/opt/pbs/bin/qsub"
    assert options.client_environment["PBS_CONF_FILE"] == "/etc/pbs-test.conf"


def test_defaults() -> None:
    (options,) = parse_master("resource_manager: {type: pbs}").managers
    assert isinstance(options, PbsOptions)
    assert (options.gpu_resource, options.place, options.host_start) == ("ngpus", NodePlacement.SCATTER, HostStart.AUTO)
    assert (options.query_format, options.container_run_type) == (Format.DSV, "apptainer")


def test_a_queues_override_adds_to_its_experiments() -> None:
    (first, *_) = task_container_fragments(parse_master(FULL), "gpu")
    assert first["environment"]["image"] == {
        "cpu": "/images/gpu.sif",
        "cuda": "/images/gpu.sif",
        "rocm": "/images/gpu.sif",
    }


def test_slurm_keeps_its_own_keys() -> None:
    with pytest.raises(ConfigError, match="gpu_resource"):
        parse_master("resource_manager: {type: slurm, gpu_resource: ngpus}")
    with pytest.raises(ConfigError, match="sbatch"):
        parse_master("resource_manager: {type: pbs, commands: {sbatch: /bin/sbatch}}")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("gpu_resource: '2 gpus'", "name of a PBS resource"),
        ("place: pack", "scatter"),
        ("host_start: rsh", "pbs_tmrsh"),
        ("query_format: xml", "dsv"),
        ("ended_listed_for: 5", "60"),
        ("job_project_source: me", "project"),
    ],
)
def test_wrong_values_are_named(key: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_master(f"resource_manager:\n  type: pbs\n  {key}\n")
    assert words in str(refused.value)
    assert key.split(":")[0] in str(refused.value)


def test_the_experiments_section() -> None:
    text = (
        "entrypoint: x\nsearcher: {name: single, metric: m}\ncheckpoint_storage: {type: shared_fs, host_path: /c}\n"
        "pbs: {slots_per_node: 4, pbsbatch_args: ['-l walltime=60']}\n"
    )
    config = parse_experiment(text, defaults=[{"pbs": {"pbsbatch_args": ["-P lab"]}}])
    assert (config.pbs.slots_per_node, config.pbs.pbsbatch_args) == (4, ["-P lab", "-l walltime=60"])
    with pytest.raises(ConfigError, match=r"pbs\.slots_per_node"):
        parse_experiment(text.replace("4", "0"))
    with pytest.raises(ConfigError, match="gpu_type"):
        parse_experiment(text.replace("slots_per_node: 4", "gpu_type: a100"))


def test_a_container_runtime_of_slurms_is_refused() -> None:
    with pytest.raises(Rejected, match="pyxis works under Slurm only"):
        PbsOptions.read({"container_run_type": "pyxis"})
    assert PbsOptions.read({"container_run_type": "enroot"}).container_run_type == "enroot"
