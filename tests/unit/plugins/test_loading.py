"""Plugins are checked when they are loaded; errors name the plugin, its package and the fix."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.visible_plugins import visible, write_metadata
from trainmaster import plugins
from trainmaster.config.experiment import parse_experiment
from trainmaster.config.master import parse_master
from trainmaster.config.messages import ConfigError
from trainmaster.master.search import Create, Search, SearchError, simulate
from trainmaster.plugins import CONTAINERS, DISPATCHERS, SEARCHERS, Kind, PluginError

Install = Callable[[str, str, str], None]
DISPATCHER = """
from trainmaster.dispatchers.local import LocalDispatcher

class Ours(LocalDispatcher):
    contract_version = 2
    kind = "ours"
"""
NEAREST = """
from typing import Any, ClassVar, Literal
from trainmaster.config.searcher import ManyTrials
from trainmaster.config.shapes import Positive
from trainmaster.master.search.random_search import RandomSearch

class Nearest(ManyTrials):
    contract_version: ClassVar[int] = 2
    required: ClassVar[dict[str, str]] = {"points": "how many points are tried"}

    name: Literal["nearest"]
    points: Positive | None = None

    def method(self, hparams: Any) -> Any:
        return RandomSearch(self.points, self.max_concurrent_trials)

    def preview(self, hparams: Any) -> Any:
        return [(self.points, None)]
"""
REST = "entrypoint: x\ncheckpoint_storage: {type: shared_fs, host_path: /c}\nhyperparameters: {lr: 1}\n"


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """Makes a package visible: its name, its module's text, its entry points."""
    made = []

    def make(name: str, text: str, points: str) -> None:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        write_metadata(tmp_path, name, points)
        made.append(name)

    with visible(tmp_path):
        yield make
    for name in made:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (DISPATCHER + "    submit = None\n", "has no method 'submit'"),
        (
            DISPATCHER + "    def log_path(self): ...\n",
            "'log_path' that cannot be called as trainmaster.dispatchers.base.",
        ),
        (DISPATCHER.replace("= 2", "= 1"), "is written for version 1 of the contract (contract_version), and this"),
        (DISPATCHER.replace("= 2", "= 3"), "and this master has version 2. Update the master."),
        (DISPATCHER + "    Options = dict\n", "has no 'Options' that inherits trainmaster.config.resource_managers."),
        (DISPATCHER + "    traits = 5\n", "has no 'traits' that is of trainmaster.dispatchers.base.Traits. Update"),
        (DISPATCHER + "Ours = 5\n", "is not a class. Correct the entry point."),
        ("import nothing_of_this_name\n", "cannot be imported: No module named 'nothing_of_this_name'"),
    ],
)
def test_a_dispatcher_that_breaks_the_contract_is_refused(install: Install, text: str, says: str) -> None:
    install("our_plugin", text, "[trainmaster.dispatchers]\nours = our_plugin:Ours\n")
    with pytest.raises(ConfigError) as refused:
        parse_master("port: 1\nresource_manager:\n  type: ours\n", source="m.yaml")
    (complaint,) = refused.value.complaints
    who = "the dispatcher 'ours' (our_plugin:Ours of the package our_plugin)"
    assert str(complaint).startswith(f"m.yaml:3: resource_manager.type: {who} ")
    assert says in f"{complaint}."


def test_missing_method_of_plugin_is_named_first(install: Install) -> None:
    text = "class Ours:\n    contract_version = 2\n    kind = 'ours'\n    def probe(self): ...\n"
    install("our_plugin", text, "[trainmaster.dispatchers]\nours = our_plugin:Ours\n")
    with pytest.raises(PluginError, match=r"has no method 'pools'; it does not fulfil .*base.Dispatcher. Update"):
        plugins.load(DISPATCHERS, "ours")


@pytest.mark.parametrize(
    ("kind", "typed", "near", "all_"),
    [
        (DISPATCHERS, "slum", "slurm", "docker, local, pbs, slurm"),
        (
            CONTAINERS,
            "aptainer",
            "apptainer",
            "apptainer, charliecloud, docker, enroot, none, podman, pyxis, singularity",
        ),
        (
            SEARCHERS,
            "randm",
            "random",
            "adaptive_asha, asha, async_halving, auto, custom, grid, median_stopping, pbt, points, random, single, tpe",
        ),
    ],
)
def test_unknown_plugin_name_lists_nearest_and_installed(kind: Kind, typed: str, near: str, all_: str) -> None:
    with pytest.raises(PluginError) as refused:
        plugins.load(kind, typed)
    assert str(refused.value) == f"There is no {kind.noun} {typed!r}. Did you mean {near!r}? Installed: {all_}."


def test_all_built_in_plugins_fulfil_their_contracts() -> None:
    for kind in (DISPATCHERS, CONTAINERS, SEARCHERS):
        for name in plugins.installed(kind):
            assert isinstance(plugins.load(kind, name), type)


def test_a_searcher_of_a_plugin_is_named_in_an_experiment(install: Install) -> None:
    install("our_searcher", NEAREST, "[trainmaster.searchers]\nnearest = our_searcher:Nearest\n")
    text = REST + "searcher: {name: nearest, metric: m, points: 3, max_concurrent_trials: 2}\n"
    config = parse_experiment(text).to_json()
    assert (config["searcher"]["points"], config["searcher"]["smaller_is_better"]) == (3, True)
    search, actions = Search.start(config["searcher"], config["hyperparameters"], 5)
    assert [type(action) for action in actions] == [Create, Create]
    again = Search.restore(config["searcher"], config["hyperparameters"], search.snapshot())
    assert again.describe() == search.describe()
    assert simulate(config["searcher"], config["hyperparameters"]) == [(3, None)]


@pytest.mark.parametrize(
    ("searcher", "says"),
    [
        ("{name: nearest, metric: m, pints: 3}", "4: searcher.pints: unknown key; did you mean points?"),
        ("{name: nearest, metric: m, points: 0}", "4: searcher.points: must be at least 1, found 0"),
        ("{name: nearest, metric: m}", "4: searcher.points: is required for nearest: how many points are tried"),
        ("{name: nearst, metric: m}", "4: searcher.name: there is no searcher 'nearst'; did you mean nearest?"),
    ],
)
def test_its_section_is_checked_by_its_own_model(install: Install, searcher: str, says: str) -> None:
    install("our_searcher", NEAREST, "[trainmaster.searchers]\nnearest = our_searcher:Nearest\n")
    with pytest.raises(ConfigError) as refused:
        parse_experiment(f"{REST}searcher: {searcher}\n", source="e.yaml")
    assert f"e.yaml:{says}" in [str(complaint) for complaint in refused.value.complaints]


def test_missing_searcher_error_names_it() -> None:
    with pytest.raises(SearchError, match="there is no searcher 'nearest'"):
        Search.start({"name": "nearest", "metric": "m", "points": 3}, {}, 5)


def test_searcher_of_the_first_contract_gets_a_sentence(install: Install) -> None:
    text = NEAREST.replace("ClassVar[int] = 2", "ClassVar[int] = 1")
    install("our_searcher", text, "[trainmaster.searchers]\nnearest = our_searcher:Nearest\n")
    with pytest.raises(PluginError, match=r"written for version 1 of the contract .* has version 2. Update the plugin"):
        plugins.load(SEARCHERS, "nearest")


def test_a_searcher_inherits_the_keys_of_all(install: Install) -> None:
    methods = "    def method(self, hparams): ...\n    def preview(self, hparams): ...\n"
    text = f"class Nearest:\n    contract_version = 2\n{methods}"
    install("our_searcher", text, "[trainmaster.searchers]\nnearest = our_searcher:Nearest\n")
    with pytest.raises(PluginError, match=r"does not inherit trainmaster\.config\.searcher\.SearcherOptions"):
        plugins.load(SEARCHERS, "nearest")


def test_the_sections_of_dispatchers_do_not_hide_other_faults(install: Install) -> None:
    text = (
        DISPATCHER
        + """    from trainmaster.dispatchers.base import Traits, UserOptions as _Base
    traits = Traits()
    class UserOptions(_Base):
        depth: int = 0
"""
    )
    install("our_plugin", text, "[trainmaster.dispatchers]\nours = our_plugin:Ours\n")
    whole = REST + "searcher: {name: single, metric: m}\n"
    assert parse_experiment(whole + "ours: {depth: 3}\n").to_json()["ours"] == {"slots_per_node": None, "depth": 3}
    with pytest.raises(ConfigError) as refused:
        parse_experiment(whole + "ours: {dept: 3, depth: x}\nmax_restarts: -1\nour: 1\n", source="e.yaml")
    assert [str(complaint) for complaint in refused.value.complaints] == [
        "e.yaml:5: ours.dept: unknown key; did you mean depth?",
        "e.yaml:5: ours.depth: a whole number is wanted, found the text 'x'",
        "e.yaml:6: max_restarts: must be at least 0, found -1",
        "e.yaml:7: our: unknown key; did you mean ours?",
    ]
