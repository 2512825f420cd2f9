"""Keras 3 in a job of trainmaster, on its TensorFlow, JAX and torch backends: two lines of a script.

from trainmaster.keras import TrainmasterCallback

model.fit(x, y, epochs=10, callbacks=[TrainmasterCallback()])
"""

from trainmaster.keras.callback import TrainmasterCallback

__all__ = ["TrainmasterCallback"]
