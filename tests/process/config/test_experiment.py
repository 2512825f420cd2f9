"""The experiment configuration: defaults, normal forms, checks."""

# ruff: noqa: E501 - tables of texts and the errors about them

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from trainmaster.config.environment import DEFAULT_IMAGE, DEFAULT_ROCM_IMAGE
from trainmaster.config.experiment import ExperimentConfig, apply_overrides, parse_experiment, without_effect
from trainmaster.config.messages import ConfigError
from trainmaster.config.policies import Policy, governed
from trainmaster.config.source import read, write

STORAGE = "checkpoint_storage: {type: shared_fs, host_path: /ckpt}\n"
MINIMAL = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n" + STORAGE

DEFAULTS: dict[str, Any] = {
    "name": None,
    "description": None,
    "labels": [],
    "workspace": "",
    "project": "",
    "entrypoint": "python3 train.py",
    "debug": False,
    "data": {},
    "hyperparameters": {},
    "searcher": {
        "name": "single",
        "metric": "loss",
        "smaller_is_better": True,
        "source_trial_id": None,
        "source_checkpoint_uuid": None,
        "max_length": None,
    },
    "resources": {
        "slots_per_trial": 1,
        "max_slots": None,
        "weight": 1,
        "priority": None,
        "resource_pool": "",
        "shm_size": None,
        "devices": [],
        "is_single_node": None,
        "native_parallel": False,
    },
    "environment": {
        "image": {"cpu": DEFAULT_IMAGE, "cuda": DEFAULT_IMAGE, "rocm": DEFAULT_ROCM_IMAGE},
        "environment_variables": {"cpu": [], "cuda": [], "rocm": []},
        "proxy_ports": [],
        "ports": {},
        "force_pull_image": False,
        "registry_auth": None,
        "add_capabilities": [],
        "drop_capabilities": [],
        "pod_spec": None,
        "modules": [],
        "conda": None,
        "venv": None,
        "setup": None,
    },
    "bind_mounts": [],
    "checkpoint_storage": {
        "type": "shared_fs",
        "host_path": "/ckpt",
        "storage_path": None,
        "propagation": "rprivate",
        "container_path": None,
        "checkpoint_path": None,
        "tensorboard_path": None,
        "save_experiment_best": 0,
        "save_trial_best": 1,
        "save_trial_latest": 1,
    },
    "checkpoint_policy": "best",
    "min_checkpoint_period": {"batches": 0},
    "min_validation_period": {"batches": 0},
    "perform_initial_validation": False,
    "scheduling_unit": 100,
    "records_per_epoch": 0,
    "max_restarts": 5,
    "failure_fuse": 5,
    "log_policies": [],
    "retention_policy": None,
    "preemption_timeout": None,
    "profiling": {"enabled": False, "begin_on_batch": 0, "end_after_batch": None, "sync_timings": True},
    "reproducibility": {"experiment_seed": None},
    "optimizations": {
        "aggregation_frequency": 1,
        "auto_tune_tensor_fusion": False,
        "average_aggregated_gradients": True,
        "average_training_metrics": True,
        "grad_updates_size_file": None,
        "gradient_compression": False,
        "mixed_precision": "O0",
        "tensor_fusion_cycle_time": 1,
        "tensor_fusion_threshold": 64,
    },
    "slurm": {"slots_per_node": None, "gpu_type": None, "sbatch_args": []},
    "pbs": {"slots_per_node": None, "pbsbatch_args": []},
    "integrations": None,
}


def parsed(more: str, **options: Any) -> dict[str, Any]:
    return parse_experiment(MINIMAL + more, **options).to_json()


def complaints(text: str, **options: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_experiment(text, source="e.yaml", **options)
    assert str(caught.value) == "\n".join(map(str, caught.value.complaints))
    return [str(complaint).removeprefix("e.yaml") for complaint in caught.value.complaints]


def test_the_defaults() -> None:
    assert parsed("") == DEFAULTS


@pytest.mark.parametrize(
    ("searcher", "expected"),
    [
        ("{name: random, metric: m, max_trials: 1e1}", {"max_trials": 10, "max_concurrent_trials": 16}),
        ("{name: grid, metric: m, max_concurrent_trials: 0}", {"max_concurrent_trials": 0}),
        ("{name: adaptive_asha, metric: m, max_trials: 3, max_time: 9, time_metric: epochs, stop_once: true}",
         {"max_trials": 3, "max_time": 9, "time_metric": "epochs", "mode": "standard", "divisor": 4, "max_rungs": 5,
          "max_concurrent_trials": 16, "bracket_rungs": []}),
        ("{name: async_halving, metric: m, max_trials: 3, max_time: 9, time_metric: epochs, num_rungs: 2, max_length: {batches: 9}}",
         {"max_trials": 3, "max_time": 9, "time_metric": "epochs", "num_rungs": 2, "divisor": 4,
          "max_concurrent_trials": 16, "max_length": {"batches": 9}}),
        ("{name: single, metric: m, max_length: 7, source_trial_id: 3}", {"max_length": 7, "source_trial_id": 3}),
    ],
)  # fmt: skip
def test_searcher_defaults(searcher: str, expected: dict[str, Any]) -> None:
    common = {
        "metric": "m",
        "smaller_is_better": True,
        "source_trial_id": None,
        "source_checkpoint_uuid": None,
        "max_length": None,
    }
    found = parse_experiment(f"entrypoint: [a]\nsearcher: {searcher}\n{STORAGE}").to_json()["searcher"]
    assert found == {**common, "name": found["name"], **expected}


@pytest.mark.parametrize(
    ("more", "path", "expected"),
    [
        ("hyperparameters: {a: 1, b: [x], c: null, g: {t: {type: const, val: null}, e: {}}}", "hyperparameters",
         {"a": {"type": "const", "val": 1}, "b": {"type": "const", "val": ["x"]}, "c": {"type": "const", "val": None},
          "g": {"t": {"type": "const", "val": None}, "e": {}}}),
        ("hyperparameters: {a: {type: log, base: 10, minval: -4, maxval: 1e-1}}", "hyperparameters.a",
         {"type": "log", "base": 10, "minval": -4, "maxval": 0.1, "count": None}),
        ("environment: {image: x}", "environment.image", {"cpu": "x", "cuda": "x", "rocm": "x"}),
        ("environment: {image: {gpu: x}}", "environment.image",
         {"cpu": DEFAULT_IMAGE, "cuda": "x", "rocm": DEFAULT_ROCM_IMAGE}),
        ("environment: {environment_variables: [A=b=c, D]}", "environment.environment_variables",
         {device: ["A=b=c", "D"] for device in ("cpu", "cuda", "rocm")}),
        ("environment: {environment_variables: {gpu: [A=b]}}", "environment.environment_variables",
         {"cpu": [], "cuda": ["A=b"], "rocm": []}),
        ("resources: {shm_size: 1.5 GiB, agent_label: x}", "resources.shm_size", 3 * 2**29),
        ("resources: {shm_size: 64k}", "resources.shm_size", 65536),
        ("resources: {shm_size: 5}", "resources.shm_size", 5),
        ("resources: {devices: ['/dev/a:/dev/b:r', {host_path: /x, container_path: /y}]}", "resources.devices",
         [{"host_path": "/dev/a", "container_path": "/dev/b", "mode": "r"},
          {"host_path": "/x", "container_path": "/y", "mode": "mrw"}]),
        ("labels: [b, a, b]", "labels", ["b", "a"]),
        ("log_policies: [{pattern: x, action: {type: exclude_node}}]", "log_policies",
         [{"name": None, "pattern": "x", "action": "exclude_node"}]),
        ("bind_mounts: [{host_path: /h, container_path: c}]", "bind_mounts",
         [{"host_path": "/h", "container_path": "c", "read_only": False, "propagation": "rprivate"}]),
        ("retention_policy: {log_retention_days: -1}", "retention_policy", {"log_retention_days": -1}),
        ("min_validation_period: {epochs: 2}", "min_validation_period", {"epochs": 2}),
        ("internal: {native: 1}\ndata_layer: 3\ntensorboard_storage: x\nsecurity: {}", "name", None),
        ("name: null\nresources: null\nslurm: {gpu_type: null}", "resources", DEFAULTS["resources"]),
        ("description: |\n  two\n  lines\n", "description", "two\nlines\n"),
    ],
)  # fmt: skip
def test_normal_forms(more: str, path: str, expected: Any) -> None:
    found = parsed(more)
    for part in path.split("."):
        found = found[part]
    assert found == expected


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ("{type: directory, container_path: /d}", {"container_path": "/d"}),
        ("{type: gcs, bucket: b, prefix: a//b/}", {"bucket": "b", "prefix": "a/b"}),
        ("{type: s3, bucket: b}", {"bucket": "b", "access_key": None, "secret_key": None, "endpoint_url": None, "prefix": None}),
        ("{type: azure, container: c, account_url: u, credential: x}",
         {"container": "c", "account_url": "u", "credential": "x", "connection_string": None}),
    ],
)  # fmt: skip
def test_storages(storage: str, expected: dict[str, Any]) -> None:
    config = parse_experiment(f"entrypoint: x\nsearcher: {{name: single, metric: m}}\ncheckpoint_storage: {storage}\n")
    found = config.to_json()["checkpoint_storage"]
    common = {"save_experiment_best": 0, "save_trial_best": 1, "save_trial_latest": 1}
    assert found == {"type": found["type"], **common, **expected}


BAD: list[tuple[str, list[str]]] = [
    ("nmae: x", [":4: nmae: unknown key; did you mean name?"]),
    ("slots_per_trial: 3", [":4: slots_per_trial: unknown key; did you mean resources.slots_per_trial?"]),
    ("name: 3", [":4: name: a text is wanted, found the number 3; put it in quotes"]),
    ('name: "a\\nb"', [":4: name: must be a single line, without line breaks and tabs"]),
    ("debug: yes", [":4: debug: true or false is wanted, found the text 'yes'; YAML 1.2 knows only true and false"]),
    ("max_restarts: -1", [":4: max_restarts: must be at least 0, found -1"]),
    ("max_restarts: 1.5", [":4: max_restarts: a whole number is wanted, found the number 1.5"]),
    ("max_restarts: true", [":4: max_restarts: a whole number is wanted, found true"]),
    ("labels: {a: 1}", [":4: labels: a list is wanted, found a mapping"]),
    ("labels:\n  - a\n  - 2", [":6: labels[1]: a text is wanted, found the number 2; put it in quotes"]),
    ("resources: 4", [":4: resources: a mapping (key: value) is wanted, found the number 4"]),
    ("resources:\n  slots_per_trail: 4",
     [":5: resources.slots_per_trail: unknown key; did you mean slots_per_trial?"]),
    ("resources: {slots_per_trial: -2}", [":4: resources.slots_per_trial: must be at least 0, found -2"]),
    ("resources: {priority: 100}", [":4: resources.priority: must be at most 99, found 100"]),
    ("resources: {shm_size: 4 apples}",
     [":4: resources.shm_size: a size is wanted (bytes, or a text such as 4 GiB), found the text '4 apples'"]),
    ("resources: {devices: [x]}",
     [":4: resources.devices[0]: a device is HOST_PATH:CONTAINER_PATH or HOST_PATH:CONTAINER_PATH:rwm, found 'x'"]),
    ("resources: {devices: ['a:/b']}", [":4: resources.devices[0]: must be an absolute path (it starts with /), found 'a'"]),
    ("environment: {image: 3}",
     [":4: environment.image: an image, or a mapping of cpu, cuda and rocm to images, is wanted, found the number 3"]),
    ("environment: {image: ''}", [":4: environment.image: must not be empty"]),
    ("environment: {environment_variables: [A B=1, 3]}",
     [":4: environment.environment_variables[0]: must be NAME=VALUE or NAME, the name without blanks, found 'A B=1'",
      ":4: environment.environment_variables[1]: a text is wanted, found the number 3; put it in quotes"]),
    ("environment: {slurm: {gpu_type: x}}", [":4: environment.slurm: unknown key; the slurm section stands at the top level"]),
    ("environment: {proxy_ports: [{proxy_port: 70000}]}",
     [":4: environment.proxy_ports[0].proxy_port: must be at most 65535, found 70000"]),
    ("slurm: {sbatch_args: [\"--x\\n#SBATCH --y\"]}",
     [":4: slurm.sbatch_args[0]: must be a single line, without line breaks and tabs"]),
    ("slurm: {slots_per_node: 0}", [":4: slurm.slots_per_node: must be at least 1, found 0"]),
    ("bind_mounts:\n- host_path: h\n  container_path: .",
     [":5: bind_mounts[0].host_path: must be an absolute path (it starts with /), found 'h'",
      ':6: bind_mounts[0].container_path: must not be "."; name a folder']),
    ("bind_mounts: [{host_path: /h}]", [":4: bind_mounts[0].container_path: is required"]),
    ("checkpoint_policy: bset", [":4: checkpoint_policy: must be one of best, all, none; found the text 'bset'; did you mean best?"]),
    ("min_validation_period: {batches: 1, epochs: 1}",
     [":4: min_validation_period: needs exactly one of batches, records and epochs, found batches and epochs"]),
    ("min_validation_period: {}",
     [":4: min_validation_period: needs exactly one of batches, records and epochs, found none"]),
    ("min_validation_period: {bathces: 1}", [":4: min_validation_period.bathces: unknown key; did you mean batches?"]),
    ("profiling: {begin_on_batch: 5, end_after_batch: 4}",
     [":4: profiling.end_after_batch: must be at least begin_on_batch (5), found 4"]),
    ("reproducibility: {experiment_seed: -1}", [":4: reproducibility.experiment_seed: must be at least 0, found -1"]),
    ("retention_policy: {}", [":4: retention_policy.log_retention_days: is required: how many days task logs are kept, -1 for ever"]),
    ("retention_policy: {log_retention_days: 40000}",
     [":4: retention_policy.log_retention_days: must be at most 32767, found 40000"]),
    ("optimizations: {mixed_precision: O4}",
     [":4: optimizations.mixed_precision: must be one of O0, O1, O2, O3; found the text 'O4'"]),
    ("log_policies: [{name: a, pattern: '('}]",
     [":4: log_policies[0].pattern: is not a regular expression (of RE2's kind): missing ): ("]),
    ("log_policies: [{pattern: x}]", [":4: log_policies[0]: needs a name"]),
    ("log_policies: [{name: a, action: exclude_nod}]",
     [":4: log_policies[0].action: must be one of cancel_retries, exclude_node; found the text 'exclude_nod'; did you mean exclude_node?"]),
    ("integrations: {pachyderm: {pachd: {host: h}}}",
     [":4: integrations.pachyderm.proxy: is required", ":4: integrations.pachyderm.dataset: is required",
      ":4: integrations.pachyderm.pachd.port: is required"]),
    ("hyperparameters: [1]", [":4: hyperparameters: a mapping (name: value) is wanted, found a list"]),
    ("hyperparameters:\n  lr: {type: doubel, minval: 1, maxval: 2}",
     [":5: hyperparameters.lr.type: there is no hyperparameter type 'doubel'; did you mean double?"]),
    ("hyperparameters:\n  lr: {type: double, minval: 2, maxval: 2}",
     [":5: hyperparameters.lr.maxval: must be above minval (2), found 2"]),
    ("hyperparameters:\n  n:\n    w: {type: int, minval: a, max: 3}",
     [":6: hyperparameters.n.w.maxval: is required", ":6: hyperparameters.n.w.minval: a whole number is wanted, found the text 'a'",
      ":6: hyperparameters.n.w.max: unknown key; did you mean maxval?"]),
    ("hyperparameters: {a: {type: log, base: 0, minval: 1, maxval: 2}}", [":4: hyperparameters.a.base: must be above 0, found 0"]),
    ("hyperparameters: {a: {type: log, base: 10, minval: 1, maxval: 1000}}",
     [":4: hyperparameters.a.maxval: is an exponent, not a value: 10 ** 1000 is too large for a number"]),
    ("hyperparameters: {a: {type: categorical, vals: []}}", [":4: hyperparameters.a.vals: needs at least 1 entries, found 0"]),
    ("hyperparameters: {a: {type: const}}", [":4: hyperparameters.a.val: is required"]),
    ("hyperparameters: {a: {type: int, minval: 1, maxval: 2, count: 0}}",
     [":4: hyperparameters.a.count: must be at least 1, found 0"]),
    ("hyperparameters: {g: {type: {type: int, minval: 1, maxval: 2}}}",
     [":4: hyperparameters.g.type: a hyperparameter cannot be called type; choose another name"]),
    ("data: 3", [":4: data: a mapping (key: value) is wanted, found the number 3"]),
    ("name: x\nname: y", [":5: name: written twice, first in line 4; keep one"]),
]  # fmt: skip


@pytest.mark.parametrize(("more", "expected"), BAD)
def test_errors_have_line_key_and_nearest_word(more: str, expected: list[str]) -> None:
    assert complaints(MINIMAL + more) == expected


BAD_SEARCHERS: list[tuple[str, list[str]]] = [
    ("single", [":2: searcher: a mapping (key: value) is wanted, found the text 'single'"]),
    ("{metric: m}", [":2: searcher.name: is required; one of adaptive_asha, asha, async_halving, auto, custom, grid, median_stopping, pbt, points, random, single, tpe"]),
    ("{name: rondom, metric: m}", [":2: searcher.name: there is no searcher 'rondom'; did you mean random?"]),
    ("{name: bayes, metric: m}",
     [":2: searcher.name: there is no searcher 'bayes'; one of adaptive_asha, asha, async_halving, auto, custom, grid, median_stopping, pbt, points, random, single, tpe"]),
    ("{name: adaptive, metric: m}", [":2: searcher.name: the searcher adaptive is no longer run; use adaptive_asha"]),
    ("{name: adaptive_simple, metric: m}",
     [":2: searcher.name: the searcher adaptive_simple is no longer run; use adaptive_asha"]),
    ("{name: sync_halving, metric: m}", [":2: searcher.name: the searcher sync_halving is no longer run; use async_halving"]),
    ("{name: auto, metric: m, max_trials: 3, time_metric: e, max_time: 9, known: [{rank: 0}]}",
     [":2: searcher.known[0].hparams: is required"]),
    ("{name: custom, metric: m, first_points: [{lr: 1}]}",
     [":2: searcher.first_points: is of no use with custom: its program creates these trials first"]),
    ("{name: single}", [":2: searcher.metric: is required: the validation metric that trials are compared by"]),
    ("{name: random, metric: m, max_trails: 3}",
     [":2: searcher.max_trials: is required for random: how many trials there are in all", ":2: searcher.max_trails: unknown key; did you mean max_trials?"]),
    ("{name: random, metric: m, max_trials: 0}", [":2: searcher.max_trials: must be at least 1, found 0"]),
    ("{name: single, metric: m, max_trials: 3}",
     [":2: searcher.max_trials: unknown key; the keys here are ask_tell, max_length, metric, name, smaller_is_better, "
      "source_checkpoint_uuid, source_trial_id"]),
    ("{name: single, metric: m, source_trial_id: 1, source_checkpoint_uuid: x}",
     [":2: searcher.source_checkpoint_uuid: cannot be set together with source_trial_id; keep one"]),
    ("{name: single, metric: m, max_length: {batches: 0}}", [":2: searcher.max_length: must be at least 1, found 0"]),
    ("{name: single, metric: m, max_length: x}",
     [":2: searcher.max_length: a length is wanted, such as {batches: 1000}, found the text 'x'"]),
    ("{name: adaptive_asha, metric: m, max_trials: 4, max_length: {epochs: 3}}",
     [":2: searcher.max_time: is required for adaptive_asha: how long a trial trains at most, in units of time_metric; "
      "it replaces max_length",
      ":2: searcher.time_metric: is required for adaptive_asha: the validation metric that says how long a trial has trained, "
      "such as epochs"]),
    ("{name: async_halving, metric: m, max_trials: 4, max_time: 3, num_rungs: 1}",
     [":2: searcher.time_metric: is required for async_halving: the validation metric that says how long a trial has trained, "
      "such as epochs"]),
    ("{name: adaptive_asha, metric: m, max_trials: 4, max_time: 3, time_metric: t, divisor: 1, mode: fast}",
     [":2: searcher.divisor: must be above 1, found 1", ":2: searcher.mode: must be one of aggressive, standard, conservative; "
      "found the text 'fast'"]),
]  # fmt: skip


@pytest.mark.parametrize(("searcher", "expected"), BAD_SEARCHERS)
def test_searchers_that_cannot_be_run(searcher: str, expected: list[str]) -> None:
    assert complaints(f"entrypoint: x\nsearcher: {searcher}\n{STORAGE}") == expected


BAD_STORAGES: list[tuple[str, str]] = [
    ("{host_path: /x}", ".type: is required; one of shared_fs, directory, s3, gcs, azure"),
    ("{type: share_fs, host_path: /x}", ".type: there is no storage type 'share_fs'; did you mean shared_fs?"),
    ("{type: hdfs}", ".type: the storage hdfs is no longer supported; use shared_fs, directory, s3, gcs or azure"),
    ("{type: shared_fs}", ".host_path: is required for shared_fs: the folder that all nodes mount"),
    ("{type: s3}", ".bucket: is required for s3: the bucket for the checkpoints"),
    ("{type: gcs}", ".bucket: is required for gcs: the bucket for the checkpoints"),
    ("{type: directory}", ".container_path: is required for directory: the folder that exists in every container"),
    ("{type: shared_fs, host_path: x}", ".host_path: must be an absolute path (it starts with /), found 'x'"),
    ("{type: shared_fs, host_path: /x, storage_path: ../y}", ".storage_path: must lie below host_path (/x), found '../y'"),
    ("{type: shared_fs, host_path: /x, storage_path: /xy}", ".storage_path: must lie below host_path (/x), found '/xy'"),
    ("{type: s3, bucket: b, prefix: a/../b}", ".prefix: must not contain \"..\", found 'a/../b'"),
    ("{type: azure, container: c}", ": needs exactly one of connection_string and account_url, found none"),
    ("{type: azure, container: c, connection_string: x, account_url: y}",
     ": needs exactly one of connection_string and account_url, found both"),
    ("{type: azure, container: c, connection_string: x, credential: y}",
     ".credential: goes with account_url, not with connection_string; remove it"),
    ("{type: shared_fs, host_path: /x, save_trial_best: -1}", ".save_trial_best: must be at least 0, found -1"),
]  # fmt: skip


@pytest.mark.parametrize(("storage", "expected"), BAD_STORAGES)
def test_storages_that_cannot_be_used(storage: str, expected: str) -> None:
    text = f"entrypoint: x\nsearcher: {{name: single, metric: m}}\ncheckpoint_storage: {storage}\n"
    assert complaints(text) == [f":3: checkpoint_storage{expected}"]


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [
        ("3", "a command, as a text or as a list of texts, is wanted, found the number 3"),
        ("[a, 3]", "a command, as a text or as a list of texts, is wanted, found the number 3"),
        ("[]", "a command, as a text or as a list of texts, is wanted, found a list"),
        ("'  '", "must not be empty"),
        ("null", "is required: the command that trains, such as python3 train.py"),
    ],
)
def test_entrypoints_that_cannot_be_run(entrypoint: str, message: str) -> None:
    text = f"entrypoint: {entrypoint}\nsearcher: {{name: single, metric: m}}\n{STORAGE}"
    assert complaints(text) == [f":1: entrypoint: {message}"]


def test_an_empty_file_lacks_three_things() -> None:
    assert [complaint.split(": ")[1] for complaint in complaints("")] == [
        "entrypoint",
        "checkpoint_storage",
        "searcher",
    ]


def test_all_errors_are_reported_together_in_file_order() -> None:
    text = "debug: 1\nsearcher:\n  name: grid\n  max_concurrent_trials: -1\nhyperparameters:\n  a: {type: int, minval: 1, maxval: 9}\nxyz: 1\n"
    found = complaints(text)
    assert [complaint.partition(": ")[0] for complaint in found] == [":1", ":2", ":4", ":6", ":7", "", ""]
    assert found[1] == ":2: searcher.metric: is required: the validation metric that trials are compared by"
    assert found[3] == ":6: hyperparameters.a.count: is required for a grid search: how many values to try"


SEARCH = {"name": "single", "metric": "m"}
SITE: dict[str, Any] = {"entrypoint": "x", "searcher": SEARCH}


@pytest.mark.parametrize(
    ("part", "below", "whole"),
    [
        (
            {"checkpoint_storage": {"type": "shared_fs", "storage_path": "sub"}},
            {"checkpoint_storage": {"type": "shared_fs", "host_path": "/c"}},
            {"type": "shared_fs", "host_path": "/c", "storage_path": "sub"},
        ),
        (
            {"checkpoint_storage": {"type": "azure"}},
            {"checkpoint_storage": {"type": "azure", "container": "c", "account_url": "u"}},
            {"type": "azure", "container": "c", "account_url": "u"},
        ),
        (
            {"checkpoint_storage": {"type": "s3", "prefix": "p"}},
            {"checkpoint_storage": {"type": "s3", "bucket": "b"}},
            {"type": "s3", "bucket": "b", "prefix": "p"},
        ),
        (
            {"searcher": {"name": "random"}},
            {"searcher": {"name": "random", "max_trials": 3, "metric": "m"}},
            {"name": "random", "max_trials": 3, "metric": "m"},
        ),
        (
            {"searcher": {"name": "async_halving", "num_rungs": 2, "max_time": 3, "time_metric": "t"}},
            {"searcher": {"name": "async_halving", "max_trials": 3, "metric": "m"}},
            {"num_rungs": 2, "max_trials": 3, "metric": "m"},
        ),
        (
            {"searcher": {"name": "single"}},
            {"searcher": {"metric": "m", "smaller_is_better": False}},
            {"name": "single", "metric": "m", "smaller_is_better": False},
        ),
        ({"searcher": {"metric": "m"}}, {"searcher": {"name": "single"}}, {"name": "single", "metric": "m"}),
        (
            {"retention_policy": {}},
            {"retention_policy": {"log_retention_days": 3}},
            {"log_retention_days": 3},
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("apart", ["a file and the site's defaults", "two of the site's defaults", "a policy"])
def test_a_part_is_judged_when_all_is_merged(
    part: dict[str, Any], below: dict[str, Any], whole: dict[str, Any], apart: str
) -> None:
    usual = {**SITE, "checkpoint_storage": {"type": "directory", "container_path": "/c"}}
    for key in part:
        usual.pop(key, None)
    match apart:
        case "a policy":
            draft = parse_experiment(write({**usual, **part}), invariants=[below])
            found = governed(draft, [Policy("the site", below)])
        case "two of the site's defaults":
            found = parse_experiment(write(usual), defaults=[part, below])
        case _:
            found = parse_experiment(write({**usual, **part}), defaults=[below])
    (key,) = part
    assert whole.items() <= found.to_json()[key].items()
    with pytest.raises(ConfigError):
        parse_experiment(write({**usual, **part}))


def test_a_policy_may_not_leave_a_part_that_is_not_whole() -> None:
    whole = parse_experiment(write({**SITE, "checkpoint_storage": {"type": "directory", "container_path": "/c"}}))
    with pytest.raises(ConfigError, match=r"checkpoint_storage\.bucket: is required for s3"):
        governed(whole, [Policy("the site", {"checkpoint_storage": {"type": "s3"}})])


def test_value_that_conflicts_with_defaults_is_refused_by_line() -> None:
    text = "entrypoint: x\nsearcher: {name: single, metric: m}\ncheckpoint_storage:\n  type: shared_fs\n  storage_path: /d\n"
    with pytest.raises(ConfigError, match=r":5: checkpoint_storage.storage_path: must lie below host_path \(/c\)"):
        parse_experiment(text, defaults=[{"checkpoint_storage": {"type": "shared_fs", "host_path": "/c"}}])


def test_keys_without_effect_are_reported() -> None:
    text = MINIMAL + "resources: {slots: 2, slots_per_trial: 1}\ndata_layer: {type: shared_fs}\nsecurity: null\n"
    assert parse_experiment(text).resources.slots_per_trial == 1
    assert without_effect(read(text, "experiment.yaml")) == [
        "experiment.yaml:5: data_layer: has no effect in an experiment.",
        "experiment.yaml:4: resources.slots: has no effect in an experiment.",
    ]
    assert without_effect(read(MINIMAL, "experiment.yaml")) == []


def test_a_grid_looks_into_lists() -> None:
    text = (
        "entrypoint: x\nsearcher: {name: grid, metric: m}\nhyperparameters:\n"
        "  a: [1, {type: int, minval: 1, maxval: 2}, [{g: {type: log, base: 2, minval: 1, maxval: 2}}]]\n" + STORAGE
    )
    assert complaints(text) == [
        ":4: hyperparameters.a[1].count: is required for a grid search: how many values to try",
        ":4: hyperparameters.a[2][0].g.count: is required for a grid search: how many values to try",
    ]


def test_a_grid_needs_counts_at_every_depth() -> None:
    text = (
        "entrypoint: x\nsearcher: {name: grid, metric: m}\nhyperparameters:\n  a: {type: categorical, vals: [1]}\n  g:\n"
        "    b: {type: log, base: 2, minval: 1, maxval: 2}\n    c: {type: int, minval: 1, maxval: 2, count: 2}\n"
    )
    assert complaints(text + STORAGE) == [
        ":6: hyperparameters.g.b.count: is required for a grid search: how many values to try"
    ]


# -- overrides


def test_overrides_win_and_are_read_as_yaml() -> None:
    found = parsed(
        "labels: [x]\nbind_mounts: [{host_path: /h, container_path: /c}]\n",
        overrides=[
            "searcher.metric=acc",
            "hyperparameters.net.lr=1e-3",
            "labels=a,b",
            "resources.devices=[/a:/b]",
            "environment.image={cpu: x, cuda: y}",
            "bind_mounts.0.read_only=true",
            'name="3"',
            "description=a = b",
            "max_restarts=2",
        ],
    )
    assert found["searcher"]["metric"] == "acc"
    assert found["hyperparameters"] == {"net": {"lr": {"type": "const", "val": 0.001}}}
    assert found["labels"] == ["a", "b"]
    assert found["resources"]["devices"][0]["host_path"] == "/a"
    assert found["environment"]["image"]["cuda"] == "y"
    assert found["bind_mounts"][0]["read_only"] is True
    assert (found["name"], found["description"], found["max_restarts"]) == ("3", "a = b", 2)


def test_a_wrong_override_is_named_instead_of_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_experiment(MINIMAL, overrides=["searcher.max_trails=3", "resources.slots_per_trial=x"])
    assert str(caught.value) == (
        "--config searcher.max_trails=3: searcher.max_trails: unknown key; the keys here are ask_tell, max_length, metric, name, "
        "smaller_is_better, source_checkpoint_uuid, source_trial_id\n"
        "--config resources.slots_per_trial=x: resources.slots_per_trial: a whole number is wanted, found the text 'x'"
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("x", "--config x: an override is KEY=VALUE, the key's parts joined by dots, as in searcher.max_trials=4"),
        ("a..b=1", "--config a..b=1: an override is KEY=VALUE, the key's parts joined by dots, as in searcher.max_trials=4"),
        ("entrypoint.x=1", "--config entrypoint.x=1: entrypoint: holds the text 'python3 train.py', which has no key 'x'"),
        ("labels=[a", "--config labels=[a:1: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'"),
    ],
)  # fmt: skip
def test_overrides_that_cannot_be_read(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(MINIMAL, [override])
    assert str(caught.value) == message


def test_applied_overrides_are_text_again() -> None:
    text = apply_overrides("a: '1e3'\nb: {c: yes}\n", ["b.d=1e3", "e=null"])
    assert read(text, "").data == {"a": "1e3", "b": {"c": "yes", "d": 1000.0}, "e": None}


# -- attributes, storing, start-up


def test_attributes_are_typed() -> None:
    config = parse_experiment(MINIMAL + "slurm: {sbatch_args: [-A x]}\n")
    assert config.searcher is not None
    assert config.checkpoint_storage is not None
    assert (config.searcher.name, config.searcher.metric) == ("single", "loss")
    assert config.checkpoint_storage.kind == "shared_fs"
    assert config.resources.slots_per_trial == 1
    assert config.slurm.sbatch_args == ["-A x"]


def test_a_stored_configuration_is_the_same() -> None:
    config = parse_experiment(MINIMAL)
    stored = config.to_json()
    assert ExperimentConfig.from_json(stored) == config
    stored["reproducibility"]["experiment_seed"] = 7
    assert ExperimentConfig.from_json(stored).reproducibility.experiment_seed == 7


def test_importing_the_package_and_its_messages_is_light() -> None:
    code = (
        "import sys, trainmaster.config, trainmaster.config.messages;"
        "sys.exit(any(name.split('.')[0] in ('pydantic', 'yaml', 'pydantic_core') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
