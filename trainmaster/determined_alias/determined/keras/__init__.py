"""`determined.keras`: see `trainmaster.keras`."""

from typing import Any

from trainmaster.keras.determined_callback import DeterminedCallback, TensorBoard

__all__ = ["DeterminedCallback", "TensorBoard"]


def __getattr__(name: str) -> Any:
    if name.startswith("TFKeras"):
        raise ImportError(
            "determined.keras.%s is not part of trainmaster: it trains Keras 2. Call model.fit() with "
            "determined.keras.DeterminedCallback, or with trainmaster.keras.TrainmasterCallback" % name
        )
    raise AttributeError("module 'determined.keras' has no attribute %r" % name)
