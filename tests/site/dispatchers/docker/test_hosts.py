"""Failures on Docker hosts, and the sentence for each."""

from __future__ import annotations

import json
import pwd
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docker.engine import DockerEngine
from tests.support.docker.hosts import AgentProcess
from tests.support.docker.site import Site, Submit, ended, eventually, running_site, seen, submitting
from trainmaster.dispatchers.base import JobSpec, JobState, StagedFile
from trainmaster.dispatchers.conformance import programs

pytestmark = pytest.mark.docker

GREEDY = """
import os, sys, time
open(sys.argv[1] + "/ready", "w").close()
while not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.02)
kept = [bytearray(os.urandom(1)) * 2**20 for _ in range(400)]
"""
SLEEPS = """
import sys, time
open(sys.argv[1] + "/ready", "w").close()
time.sleep(300)
"""
ONE_FAILS = """
import os, sys, time
if os.environ["TRAINMASTER_NODE_RANK"] == "1":
    sys.exit(7)
time.sleep(300)
"""


@pytest.fixture
def submit(site: Site) -> Iterator[Submit]:
    with submitting(site) as submit:
        yield submit


def ready(site: Site, spec: JobSpec) -> None:
    eventually((site.agent.job_folder(spec.token) / "ready").exists, "the start of the job")


def container(spec: JobSpec) -> str:
    return f"tm-{spec.token}-0"


def test_out_of_memory_is_distinguished_from_outside_kill(site: Site, submit: Submit) -> None:
    greedy, killed = submit(GREEDY), submit()
    ready(site, greedy)
    ready(site, killed)
    site.engine.limit_memory(container(greedy), 64 * 2**20)
    (site.agent.job_folder(greedy.token) / "go").touch()
    site.engine.kill(container(killed))
    end = ended(site, greedy)
    assert (end.state, "memory" in end.explanation) == (JobState.OUT_OF_MEMORY, True)
    end = ended(site, killed)
    assert (end.state, end.exit_signal) == (JobState.FAILED, 9)
    assert "someone" in end.explanation


def test_a_container_that_was_removed_is_not_started_again(site: Site, submit: Submit) -> None:
    spec = submit()
    ready(site, spec)
    site.engine.remove(container(spec))
    end = ended(site, spec)
    assert end.state is JobState.INFRASTRUCTURE
    assert "removed" in end.explanation


def test_a_daemon_that_was_restarted_is_blamed_and_not_the_job(site: Site, submit: Submit) -> None:
    spec = submit(SLEEPS)
    ready(site, spec)
    site.engine.stop()
    eventually(lambda: site.dispatcher.agents()[0].problem, "the agent to say that its daemon is away")
    assert not seen(site, spec.token).state.terminal
    site.engine.start()
    end = ended(site, spec)
    assert end.state is JobState.INFRASTRUCTURE
    assert "daemon" in end.explanation.lower()
    after = submit(programs.ENDS_WELL)
    assert ended(site, after).state is JobState.COMPLETED


def test_jobs_run_as_whom_they_name_and_never_as_root(site: Site, submit: Submit) -> None:
    bob, root, nobody_we_know = submit(programs.TELLS, user="tmbob"), submit(user="root"), submit(user="nosuchone")
    assert ended(site, bob).state is JobState.COMPLETED
    eventually(lambda: site.dispatcher.collect(bob.token).exits, "the record")
    facts = json.loads(site.dispatcher.collect(bob.token).exits[0])
    assert facts["environment"]["USER"] == "tmbob"
    assert site.agent.job_folder(bob.token).stat().st_uid == pwd.getpwnam("tmbob").pw_uid
    for spec, says in ((root, "do not run as root"), (nobody_we_know, "no account 'nosuchone'")):
        end = ended(site, spec)
        assert end.state is JobState.FAILED
        assert says in end.explanation


def test_job_remains_are_read_without_following_links(site: Site, submit: Submit) -> None:
    program = """
import os, sys
os.rmdir(sys.argv[1] + "/spool")
os.symlink("/etc", sys.argv[1] + "/spool")
os.symlink("/etc/shadow", sys.argv[1] + "/exit/0.json")
"""
    spec = submit(program)
    assert ended(site, spec).state is JobState.COMPLETED
    remains = site.dispatcher.collect(spec.token)
    assert (dict(remains.exits), dict(remains.streams)) == ({}, {})


def test_a_disabled_agent_ends_its_jobs_and_takes_none(site: Site, submit: Submit) -> None:
    spec = submit()
    ready(site, spec)
    site.dispatcher.disable("host1")
    try:
        end = ended(site, spec)
        assert "disabled" in end.explanation or end.state is JobState.COMPLETED
        waits = submit()
        job = seen(site, waits.token)
        assert job.state is JobState.QUEUED
        assert "disabled or lost" in job.explanation
    finally:
        site.dispatcher.enable("host1")
    ready(site, waits)


def test_a_disabled_slot_is_not_used(site: Site, submit: Submit) -> None:
    for slot in (0, 1, 2):
        site.dispatcher.disable("host1", slot, drain=True)
    try:
        first, second = submit(), submit()
        ready(site, first)
        assert seen(site, second.token).state is JobState.QUEUED
        assert [slot.fact.id for slot in site.dispatcher.agents()[0].slots if slot.token] == [3]
    finally:
        for slot in (0, 1, 2):
            site.dispatcher.enable("host1", slot)
    ready(site, second)


def test_a_gang_with_a_failed_node_is_ended_as_a_whole(docker_engine: DockerEngine, tmp_path: Path) -> None:
    with running_site(docker_engine, tmp_path) as site, submitting(site) as submit:
        site.add_agent()
        site.add_agent("host2")
        end = ended(site, submit(ONE_FAILS, slots=8))
        assert (end.state, end.exit_code) == (JobState.FAILED, 7)
        assert "host2 (node 1)" in end.explanation
        assert list(end.nodes) == ["host1", "host2"]
        never = seen(site, submit(slots=17).token)
        assert never.never
        assert "17 slots" in never.explanation


def test_a_second_agent_of_a_name_takes_the_place_of_the_first(site: Site, submit: Submit) -> None:
    spec = submit()
    ready(site, spec)
    first = site.agents.pop()
    site.add_agent()
    eventually(lambda: first.returncode is not None, "the first agent to leave")
    assert first.returncode == 1
    assert "Another process is the agent host1" in first.log.read_text()
    assert seen(site, spec.token).state is JobState.RUNNING


def test_agent_with_wrong_enrolment_key_is_rejected(site: Site) -> None:
    wrong = site.folder / "wrong-token"
    wrong.write_text("not-the-secret-of-this-master")
    agent = AgentProcess(site.engine, site.folder, site.server.url, wrong, "stranger").start()
    eventually(lambda: agent.returncode is not None, "the stranger to leave")
    assert agent.returncode == 1
    assert "does not accept this agent: This is not the enrolment key of agents" in agent.log.read_text()
    assert "stranger" not in [view.id for view in site.dispatcher.agents()]


def test_dispatcher_that_does_not_lead_says_so(site: Site) -> None:
    site.dispatcher.follow()
    try:
        request = urllib.request.Request(
            f"{site.server.url}/api/x1/agents/host1/orders",
            headers={"Authorization": f"Bearer {(site.agent.data / 'secret').read_text().strip()}"},
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=60)
        assert caught.value.code == 503
        assert "is not the leader" in json.loads(caught.value.read())["message"]
        caught.value.close()
        # What the one that led has written down can still be shown.
        assert [view.id for view in site.dispatcher.agents()] == ["host1"]
        assert site.dispatcher.pools()[0].slots_total == 4
    finally:
        site.dispatcher.lead()
    eventually(lambda: any(view.up for view in site.dispatcher.agents()), "the agent")


def test_a_job_that_is_too_large_to_hand_in_still_ends(site: Site, submit: Submit) -> None:
    """A pipe and a folder in the place of its streams are left out."""
    program = """
import os, sys
os.mkfifo(sys.argv[1] + "/spool/core.jsonl")
os.mkdir(sys.argv[1] + "/spool/log-0.jsonl")
"""
    assert ended(site, submit(program)).state is JobState.COMPLETED


def test_files_with_odd_modes_arrive_as_they_are(site: Site, submit: Submit) -> None:
    spec = submit(files={**programs.runtime(programs.WAITS), "hooks/00.sh": StagedFile(b"#!/bin/sh\n", 0o700)})
    ready(site, spec)
    assert (site.agent.job_folder(spec.token) / "hooks" / "00.sh").stat().st_mode & 0o777 == 0o700
