"""What a configuration becomes on its way to a scheduler."""

from __future__ import annotations

from trainmaster.master.services.jobspec import unheeded

ASKS = {
    "environment": {"registry_auth": {"username": "ada"}, "add_capabilities": ["SYS_PTRACE"], "drop_capabilities": []},
    "resources": {"devices": [{"host_path": "/dev/fuse", "container_path": "/dev/fuse"}]},
}


def test_the_owner_is_told_what_a_scheduler_does_not_heed() -> None:
    said = unheeded("slurm", ASKS)
    assert said == (
        "environment.registry_auth and environment.add_capabilities and resources.devices: only Docker hosts heed "
        "this; slurm does not."
    )
    assert unheeded("docker", ASKS) is None
    assert unheeded("slurm", {"environment": None, "resources": {"devices": []}}) is None
