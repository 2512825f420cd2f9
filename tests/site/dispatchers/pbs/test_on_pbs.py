"""Runs the modules that need a real PBS, each under the account of an ordinary user, when the tests run as root."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.site.dispatchers.pbs.conftest import ON_PBS
from tests.support.pbs.site import PbsSite, run_suite_as

# Reasons why a test may be left out, with the number of tests that have them: all but the first are a site's nature.
BY_DESIGN = {
    "without a container no user value reaches the script": 1,
    "this PBS has one slot: no job can have two nodes": 3,
    "this PBS has one host": 2,
    "the job ran on another machine": 1,
    "the job runs on another machine": 1,
    "this PBS makes no folder for temporary files": 1,
}


def skipped(stdout: str) -> Counter[str]:
    """The reasons of an inner run, with the number of tests that each left out."""
    found: Counter[str] = Counter()
    for number, reason in re.findall(r"^SKIPPED \[(\d+)\] \S+: (.+)$", stdout, re.MULTILINE):
        found[reason] += int(number)
    return found


def outcomes(stdout: str) -> Counter[str]:
    """Of pytest's last line, "34 passed, 1 skipped in 5.00s", the numbers by their words."""
    last = stdout.strip().rpartition("\n")[2]
    return Counter({word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", last.rpartition(" in ")[0])})


@pytest.mark.pbs
@pytest.mark.slow
@pytest.mark.parametrize("module", ON_PBS)
def test_for_an_ordinary_user(pbs_site: PbsSite, module: str) -> None:
    done = run_suite_as(pbs_site.user, Path("tests/site/dispatchers/pbs") / module, ["-rs"])
    said = f"{done.stdout[-6000:]}\n{done.stderr[-1000:]}"
    assert done.returncode == 0, said
    found, reasons = outcomes(done.stdout), skipped(done.stdout)
    print(f"{module}: {dict(found)}, left out: {dict(reasons)}")
    assert found["passed"], said
    assert set(found) <= {"passed", "skipped"}, said
    assert found["skipped"] == reasons.total(), said  # each says why
    assert not reasons - Counter(BY_DESIGN), said
