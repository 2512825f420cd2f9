"""No command of the published `det` is forgotten: each is run by a test here, or stands in a table with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.contract.conftest import Reference
from tests.support.reference.batch import batch
from tests.support.reference.commands import Command, published, written

TESTS = Path(__file__).parents[2]
# Commands that this master refuses, or has nothing to say to, as they are run here -> what they say.
REFUSED = {
    "auth list-providers": "No SSO providers found",
    "auth login --headless": "No SSO providers found",
    "!oauth client list": "has no single sign-on",
    "!oauth client add portal https://portal.example": "has no single sign-on",
    "!oauth client remove 7": "has no single sign-on",
    "!workspace bindings list Uncategorized": "Kubernetes",
    "!workspace bindings set Uncategorized --namespace x": "Kubernetes",
    "!workspace bindings delete Uncategorized": "Kubernetes",
    "!workspace resource-quota set Uncategorized 4": "Kubernetes",
}
# Commands that have nothing to do with a master that is there.
ELSEWHERE = {"deploy": "it brings up Determined's own master, in a cloud or on this machine"}


@pytest.fixture(scope="module")
def commands(installed: Path) -> list[Command]:
    found = published(installed)
    assert len(found) > 150
    return found


def test_every_command_is_run_or_refused(commands: list[Command]) -> None:
    ran = [words for folder in ("process/contract", "process/e2e", "site/e2e") for words in written(TESTS / folder)]
    ran += [line.removeprefix("!").split() for line in REFUSED]
    forgotten = {str(command) for command in commands if not any(map(command.is_begun_by, ran))}
    assert forgotten == set(ELSEWHERE)


def test_refused_commands_say_why(client: Reference) -> None:
    for said, sentence in zip(batch(client, *REFUSED), REFUSED.values(), strict=True):
        assert sentence in said.out + said.err, said
