"""Tables of learning curves for searches: made by training a small network at every point of a grid, and drawn from the
prior of a curve model. They are kept in a cache folder, since the trained ones take minutes."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import math
import sys
import types
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

EPOCHS = 81
GRID = {
    "lr": [10 ** (-4 + 0.5 * n) for n in range(9)],
    "momentum": [0.0, 0.5, 0.9, 0.99],
    "batch": [16, 64, 256],
    "width": [16, 64, 256],
    "l2": [0.0, 1e-4, 1e-2],
    "activation": ["relu", "tanh"],
}


def trained(name: str, folder: Path) -> dict[str, Any]:
    """Return the table `digits` or `synth`: `space`, `points` (a list), `values` [points, epochs] (the error on data
    that was held out; smaller is better), `seconds` [points] of an epoch. Trains all points first where no file holds
    it."""
    file = folder / f"trained-{name}.npz"
    points = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    if not file.exists():
        with ProcessPoolExecutor(2) as pool:
            values = np.array(list(pool.map(_train, [name] * len(points), points, chunksize=27)))
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, values=values.astype(np.float32))
    values = np.load(file)["values"]
    space = {name: {"type": "categorical", "vals": axis} for name, axis in GRID.items()}
    return {"name": name, "space": space, "points": points, "values": values, "seconds": [_seconds(p) for p in points]}


def _seconds(point: dict[str, Any]) -> float:
    """A model of what an epoch costs: small batches and wide layers take longer; 16 times between the extremes."""
    return float(
        0.5 + 2.0 * (16 / point["batch"]) ** 0.5 + 5.5 * (point["width"] / 256) * (16 / point["batch"]) ** 0.25
    )


def _data(name: str) -> tuple[Any, Any, Any, Any]:
    rng = np.random.RandomState(7)
    if name == "digits":
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        x = x / 16.0
    else:
        from sklearn.datasets import make_classification

        x, y = make_classification(
            1800, 20, n_informative=10, n_redundant=4, n_classes=6, n_clusters_per_class=3, flip_y=0.05, random_state=3
        )
        x = x / x.std(axis=0)
    order = rng.permutation(len(x))
    x, y = x[order].astype(np.float32), y[order]
    cut = len(x) * 2 // 3
    return x[:cut], y[:cut], x[cut:], y[cut:]


def _train(name: str, point: dict[str, Any]) -> list[float]:
    x, y, held_x, held_y = _data(name)
    rng = np.random.RandomState(1)
    width, classes = point["width"], int(y.max()) + 1
    w1 = (rng.randn(x.shape[1], width) * math.sqrt(2 / x.shape[1])).astype(np.float32)
    w2 = (rng.randn(width, classes) * math.sqrt(1 / width)).astype(np.float32)
    b1, b2 = np.zeros(width, np.float32), np.zeros(classes, np.float32)
    weights = [w1, b1, w2, b2]
    speed = [np.zeros_like(each) for each in weights]
    relu = point["activation"] == "relu"
    hot = np.eye(classes, dtype=np.float32)[y]
    errors = []
    with np.errstate(all="ignore"):
        for _ in range(EPOCHS):
            order = rng.permutation(len(x))
            for start in range(0, len(x), point["batch"]):
                rows = order[start : start + point["batch"]]
                inner = x[rows] @ weights[0] + weights[1]
                hidden = np.maximum(inner, 0) if relu else np.tanh(inner)
                out = hidden @ weights[2] + weights[3]
                out = np.exp(out - out.max(axis=1, keepdims=True))
                out = (out / out.sum(axis=1, keepdims=True) - hot[rows]) / len(rows)
                back = (out @ weights[2].T) * ((inner > 0) if relu else (1 - hidden**2))
                steps = [x[rows].T @ back, back.sum(axis=0), hidden.T @ out, out.sum(axis=0)]
                for place, step in enumerate(steps):
                    step = step + (point["l2"] * weights[place] if place in (0, 2) else 0)
                    speed[place] = point["momentum"] * speed[place] - point["lr"] * step
                    weights[place] = weights[place] + speed[place]
            inner = held_x @ weights[0] + weights[1]
            hidden = np.maximum(inner, 0) if relu else np.tanh(inner)
            guess = (hidden @ weights[2] + weights[3]).argmax(axis=1)
            errors.append(float((guess != held_y).mean()))
    return errors


class Drawn:
    """A task of ifBO's prior (package `ifbo`, unpacked at `package`): a random network from hyperparameters to the
    shapes of curves. Its network is evaluated with NumPy in place of torch. Any point has a curve."""

    def __init__(self, seed: int, package: Path, epochs: int = EPOCHS) -> None:
        prior = _prior(package)
        self._seed, self._epochs = seed, epochs
        with _seeded(seed):
            self.dimensions = np.random.randint(2, 7)
            self._dataset = prior.DatasetPrior(self.dimensions, 23)
        self.names = [f"x{n}" for n in range(self.dimensions)]
        self.space = {name: {"type": "double", "minval": 0.0, "maxval": 1.0} for name in self.names}

    def curve(self, point: dict[str, Any]) -> tuple[list[float], float]:
        """Return the values (smaller is better), one an epoch, and the seconds of an epoch."""
        config = np.array([[point[name] for name in self.names]])
        with _seeded(zlib.crc32(config.tobytes()) ^ self._seed):
            at = np.arange(1, self._epochs + 1) / self._epochs
            values = 1 - self._dataset.curves_for_configs(config)(at, 0)
            seconds = float(np.exp(np.random.normal(0, 0.5)))
        return values.tolist(), seconds


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """NumPy's global stream, from which the package draws."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


@functools.cache
def _prior(package: Path) -> Any:
    """Import the prior with a stand-in for torch: of that it needs names only, once its network is replaced. The real
    modules of these names are there again afterwards: packages that are compared may use them."""

    class Anything(type):
        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return Stand

    class Stand(metaclass=Anything):
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __call__(self, decorated: Any = None) -> Any:
            return decorated

        def __getattr__(self, name: str) -> Any:
            return Stand

    modules: dict[str, Any] = {
        name: types.ModuleType(name)
        for name in ("torch", "torch.nn", "ifbo", "ifbo.encoders", "ifbo.priors", "ifbo.priors.prior", "ifbo.utils")
    }
    modules["torch"].__getattr__ = lambda _: Stand
    modules["torch"].from_numpy = lambda array: array
    modules["torch"].nn = Stand
    modules["ifbo.priors"].__path__ = [str(package / "ifbo" / "priors")]
    modules["ifbo"].encoders = modules["ifbo.encoders"]
    modules["ifbo.encoders"].Normalize = lambda mean, std: lambda x: (x - mean) / std
    modules["ifbo.priors.prior"].Batch = Stand
    modules["ifbo.utils"].default_device = "cpu"
    real = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in ("torch", "ifbo")}
    _replace(real, modules)
    try:
        prior: Any = importlib.import_module("ifbo.priors.ftpfn_prior")
    finally:
        _replace({**modules, "ifbo.priors.ftpfn_prior": None}, real)
    prior.DatasetPrior._get_model = lambda self: _network(self.num_inputs, self.num_outputs)
    prior.DatasetPrior.output_for_config = lambda self, config, **_: self.model(self.normalizer(config))
    return prior


def _replace(before: Iterable[str], now: dict[str, Any]) -> None:
    for name in before:
        sys.modules.pop(name, None)
    sys.modules.update(now)


def _network(inputs: int, outputs: int) -> Any:
    """Return a random tanh network with the distribution of sizes and weights of the package's."""
    layers, hidden = np.random.randint(8, 16), np.random.randint(36, 150)
    std = np.random.uniform(0.089, 0.193)
    before, after = np.random.uniform(0.0003, 0.0014), np.random.uniform(0.0004, 0.0013)
    sizes = [inputs, *[hidden] * (layers - 1), outputs]
    keep = 1 - 0.145
    weights, biases = [], []
    for place, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weight = np.random.normal(0, std, (rows, columns))
        if 0 < place < len(sizes) - 2:
            weight = weight / math.sqrt(keep) * (np.random.uniform(size=weight.shape) < keep)
        weights.append(weight)
        biases.append(np.random.normal(0, std, columns))

    def network(x: Any) -> Any:
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            x = x @ weight + bias
            x = np.tanh(x + np.random.normal(0, before, x.shape))
        x = x @ weights[-1] + biases[-1]
        return x + np.random.normal(0, after, x.shape)

    return network
