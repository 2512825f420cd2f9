"""The values of JSON columns: what is stored comes back, also what another release wrote."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from trainmaster.config.experiment import ExperimentConfig, parse_unfinished
from trainmaster.config.git_state import GitState
from trainmaster.config.task import TaskConfig
from trainmaster.master.db.tables import Allocation, Experiment
from trainmaster.master.values import columns
from trainmaster.master.values.configs import StoredConfig, StoredTask
from trainmaster.master.values.observed import ObservedJob
from trainmaster.master.values.search import SearchGoal
from trainmaster.master.values.stored import Json

TEXTS = st.text(max_size=8)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, ANY_JSON, max_size=4)
TIMES = st.none() | st.floats(0, 2e9)
NAMES = st.lists(TEXTS, max_size=3).map(tuple)
OBSERVED = st.builds(
    ObservedJob,
    raw=st.none() | TEXTS,
    reason=st.none() | TEXTS,
    text=st.none() | TEXTS,
    nodes=NAMES,
    ends_at=TIMES,
    never=st.booleans(),
    never_since=TIMES,
    taken_back_at=TIMES,
    restarts=st.integers(0, 9),
    expected_start=TIMES,
    estimated=TIMES,
    doubles=NAMES,
    ended_seen_at=TIMES,
    alive_at=TIMES,
    signal=st.none() | st.integers(1, 64),
    canceller=st.none() | TEXTS,
    started_at=TIMES,
    submitted_at=TIMES,
    controller_started_at=TIMES,
    script_began=st.none() | st.booleans(),
    asked=st.booleans(),
    unknown=st.dictionaries(TEXTS.map(lambda key: f"of a newer release {key}"), ANY_JSON, max_size=2),
)
SECTIONS = ("resources", "environment", "searcher", "checkpoint_storage", "retention_policy", "integrations")
CONFIGS = st.dictionaries(st.sampled_from([*ExperimentConfig.model_fields, "of_a_newer_release"]), ANY_JSON | OBJECTS)
# What is read whole; the others have fields of their own.
KINDS: list[type[Any]] = [kind for kind in columns.COLUMNS if kind not in (ObservedJob, GitState)]


@given(OBSERVED)
def test_an_observation_comes_back(observed: ObservedJob) -> None:
    assert ObservedJob.from_json(observed.to_json()) == observed


def test_a_commit_comes_back() -> None:
    state = GitState.of(commit="a" * 40, branch="main", diff="+x\n", untracked=2)
    assert GitState.from_json({**state.to_json(), "of_a_later_release": 1}) == state


@given(stored=CONFIGS)
def test_a_stored_object_comes_back_as_it_was(stored: Json) -> None:
    for kind in KINDS:
        value = kind.from_json(stored)
        assert value.to_json() == stored, kind
        assert kind.from_json(value.to_json()) == value, kind


@given(stored=CONFIGS.filter(lambda stored: not any(isinstance(stored.get(key), str | list) for key in SECTIONS)))
def test_sections_are_read_whatever_another_release_has_written(stored: Json) -> None:
    """What does not fit has the default; the stored object stays as it is."""
    config = StoredConfig.from_json(stored | {"bind_mounts": [], "searcher": {}, "checkpoint_storage": None})
    assert config.resources.slots_per_trial >= 0
    assert config.environment.image.cpu
    assert config.webhooks.exclude in (True, False)
    assert config.log_retention_days is None or config.log_retention_days >= -1


def test_invalid_stored_value_becomes_default_and_others_stay() -> None:
    config = StoredConfig(
        {
            "resources": {"slots_per_trial": -3, "priority": 7, "shards": 2},
            "environment": {"image": {"cpu": "mine", "tpu": "new"}, "proxy_ports": [{"proxy_port": 80}, {"port": 1}]},
        }
    )
    assert (config.resources.slots_per_trial, config.resources.priority) == (1, 7)
    assert config.environment.image.cpu == "mine"
    assert [port.proxy_port for port in config.environment.proxy_ports] == [80]


def test_defaults_are_those_of_the_models() -> None:
    whole, nothing = StoredConfig.of(parse_unfinished("entrypoint: x")), StoredConfig({})
    for name in ("resources", "environment", "max_restarts", "failure_fuse", "hyperparameters", "labels", "weight"):
        assert getattr(nothing, name) == getattr(whole, name), name
    task = StoredTask.of(TaskConfig())
    for name in ("resources", "environment", "notebook_idle_type", "tensorboard_args", "slots"):
        assert getattr(StoredTask({}), name) == getattr(task, name), name


@given(CONFIGS)
def test_a_changed_copy_keeps_all_other_keys(stored: Json) -> None:
    config = StoredConfig({**stored, "resources": {"of_a_newer_release": 1, "priority": 3}})
    changed = config.with_resources(priority=9).updated(name="other")
    assert changed.resources.priority == 9
    assert config.resources.priority == 3
    assert changed.to_json() == {
        **config.to_json(),
        "name": "other",
        "resources": {"of_a_newer_release": 1, "priority": 9},
    }


@given(OBJECTS)
def test_a_searcher_of_a_plugin_keeps_its_section(section: Json) -> None:
    known = {key: value for key, value in section.items() if key not in SearchGoal.__dataclass_fields__}
    assert SearchGoal.from_json(known).to_json() == known


def test_search_with_a_budget_or_a_deadline_has_a_plan() -> None:
    sections: list[Json] = [{"slot_hours": 20}, {"deadline": "Fri 12:00"}]
    assert all(SearchGoal.from_json(section).planned for section in sections)
    assert not SearchGoal.from_json({"max_trials": 20, "deadline": None}).planned


def test_a_column_holds_null_and_values_and_reads_paths(engine: Engine) -> None:
    observed = ObservedJob(nodes=("n1",), never_since=3.0)
    bound = Allocation.__table__.c.observed.type
    dialect = engine.dialect
    assert bound.process_bind_param(observed, dialect) == {"nodes": ["n1"], "restarts": 0, "never_since": 3.0}  # type: ignore[attr-defined]
    assert bound.process_result_value({"nodes": ["n1"]}, dialect) == ObservedJob(nodes=("n1",))  # type: ignore[attr-defined]
    assert bound.process_result_value(None, dialect) is None  # type: ignore[attr-defined]
    path = Experiment.config[StoredConfig.RESOURCES][StoredConfig.PRIORITY]
    assert str(select(path).compile(dialect=dialect)).startswith("SELECT experiments.config[%(param_1)s][%(param_2)s]")
