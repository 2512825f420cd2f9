"""The searchers pass the conformance suite of searchers."""

from __future__ import annotations

from typing import Any, ClassVar

from trainmaster.master.search.conformance import SearcherConformance

MANY: dict[str, Any] = {"metric": "loss", "max_trials": 14, "max_concurrent_trials": 5}
TIMED: dict[str, Any] = {**MANY, "time_metric": "epochs", "max_time": 20}


class TestSingle(SearcherConformance):
    sections: ClassVar = [{"name": "single", "metric": "loss"}]


class TestRandom(SearcherConformance):
    sections: ClassVar = [{"name": "random", **MANY}, {"name": "random", **MANY, "sampling": "sobol"}]


class TestGrid(SearcherConformance):
    sections: ClassVar = [{"name": "grid", "metric": "loss", "max_concurrent_trials": 3}]


class TestPoints(SearcherConformance):
    points: ClassVar = [{"lr": 0.1 * n, "net": {"width": n, "act": "a"}} for n in range(1, 8)]
    sections: ClassVar = [{"name": "points", "metric": "loss", "points": points, "max_concurrent_trials": 3}]


class TestAsyncHalving(SearcherConformance):
    sections: ClassVar = [{"name": "async_halving", **TIMED, "num_rungs": 3, "divisor": 3}]


class TestAsha(SearcherConformance):
    sections: ClassVar = [{"name": "asha", **TIMED, "divisor": 3}, {"name": "asha", **TIMED, "num_rungs": 1}]


class TestAuto(SearcherConformance):
    sections: ClassVar = [{"name": "auto", **TIMED, "max_trials": 40}]


class TestAdaptiveAsha(SearcherConformance):
    sections: ClassVar = [{"name": "adaptive_asha", **TIMED, "mode": "conservative"}]


class TestMedianStopping(SearcherConformance):
    sections: ClassVar = [{"name": "median_stopping", **TIMED, "interval": 3, "least_trials": 2}]


class TestPbt(SearcherConformance):
    sections: ClassVar = [{"name": "pbt", "metric": "loss", "time_metric": "epochs", "max_time": 30, "population": 6}]


class TestTpe(SearcherConformance):
    rule: ClassVar = {"name": "asha", "time_metric": "epochs", "max_time": 20, "divisor": 3}
    sections: ClassVar = [{"name": "tpe", **MANY, "max_trials": 5, "max_concurrent_trials": 3, "rule": rule}]


class TestAutoWithinBudget(SearcherConformance):
    timed: ClassVar = {key: value for key, value in TIMED.items() if key != "max_trials"}
    sections: ClassVar = [
        {"name": "auto", **timed, "slot_hours": 40 / 3600},
        {"name": "auto", **TIMED, "max_trials": 60, "slot_hours": 200 / 3600, "deadline": "1970-01-01T00:05:00+00:00"},
    ]
