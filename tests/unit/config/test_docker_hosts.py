"""`type: docker` (`agent` in Determined's files) and its pools."""

from __future__ import annotations

import pytest

from trainmaster.config.master import parse_master, task_container_fragments
from trainmaster.config.messages import ConfigError
from trainmaster.dispatchers.docker.options import DockerOptions

DETERMINEDS = """
resource_manager:
  type: agent
  scheduler: {type: fair_share, fitting_policy: worst}
  default_aux_resource_pool: small
  no_default_resource_pools: false
additional_resource_managers:
  - {type: docker, cluster_name: more, resource_pools: [{pool_name: x, task_container_defaults: {image: own}}]}
resource_pools:
  - pool_name: large
    max_aux_containers_per_agent: 3
    scheduler: {preemption: true, default_priority: 7}
    task_container_defaults: {image: theirs}
  - {pool_name: small, description: the rest, agent_reconnect_wait: 5m}
"""


def test_determineds_file_is_read() -> None:
    config = parse_master(DETERMINEDS)
    first, second = config.managers
    assert isinstance(first, DockerOptions)
    assert isinstance(second, DockerOptions)
    assert config.resource_manager is first
    assert first.type == "docker"
    assert (first.pool_names(), second.pool_names()) == (["large", "small"], ["x"])
    # A pool's scheduler says only what is different.
    large, small = (first.scheduler_of(pool).model_dump() for pool in DockerOptions.read(first.settings()).pools)
    assert large == {"type": "fair_share", "fitting_policy": "worst", "preemption": True, "default_priority": 7}
    assert small["preemption"] is False
    assert config.warnings == []


def test_a_pools_defaults_reach_its_experiments() -> None:
    config = parse_master(DETERMINEDS)
    for pool, image in (("large", "theirs"), ("x", "own")):
        assert task_container_fragments(config, pool)[0]["environment"]["image"]["cpu"] == image


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("resource_pools: [{pool_name: a}]", "resource_pools[0].provider: is required"),
        ("resource_manager: {type: docker, scheduler: {type: round_robin}}", "one of priority, fair_share"),
        ("resource_manager: {type: docker, container_run_type: apptainer}", "must be one of docker"),
        (
            "resource_manager: {type: docker, resource_pools: [{pool_name: a}, {pool_name: a}]}",
            "another pool called 'a'",
        ),
        (
            "resource_manager: {type: docker, resource_pools: [{pool_name: a}]}\nresource_pools: [{pool_name: a}]",
            "master.yaml:2: resource_pools[0].pool_name: there is another pool called 'a'",
        ),
        ("resource_manager: {type: docker, agent_timeout: 0}", "agent_timeout"),
    ],
)
def test_errors_are_reported(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_master(text)
    assert says in "\n".join(map(str, caught.value.complaints))
