"""The ten questions that people open the page with: each is answered in as few clicks as was promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.master import MasterProcess, serving
from tests.support.webui.chromium import Visit
from tests.support.webui.logs import make_log
from tests.support.webui.questions import QUESTIONS, Way
from tests.support.webui.searches import Searches, end_searches, make_searches

pytestmark = pytest.mark.browser
CONFIG = "cluster_name: kestrel\nresource_manager: {type: local, slots: 4, poll_interval: 5}\n"
LINES = 20_000  # of the failed trial's log; `scripts/bench webui` asks with a million


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[MasterProcess, Searches]]:
    with serving(CONFIG) as process:
        found = make_searches(process, trials=100)
        make_log(process, LINES)
        yield process, found
        end_searches(process, found)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
def test_a_question_is_answered(
    visit: Callable[..., Visit], site: tuple[MasterProcess, Searches], question: Callable[[Way], None]
) -> None:
    master, searches = site
    visitor = visit(master.url)
    visitor.sign_in("determined", master.password)
    way = Way(visitor, searches)
    way.home()
    question(way)
    assert way.clicks <= QUESTIONS[question]
