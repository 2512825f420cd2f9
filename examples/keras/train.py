"""A small network reads scikit-learn's digits: Keras 3 on its JAX backend, the one that trains on several nodes."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
import jax
import keras
from sklearn.datasets import load_digits

from trainmaster.core import apply_hparams
from trainmaster.keras import TrainmasterCallback

hparams = apply_hparams({"learning_rate": 2e-3, "hidden": 64, "epochs": 4})
rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if size > 1:
    if jax.config.jax_platforms == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    keras.distribution.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], size, rank)
    devices = keras.distribution.list_devices()
    # Each process brings its own part of the data.
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False))
keras.utils.set_random_seed(**apply_hparams(keras.utils.set_random_seed, seed=0))

digits = load_digits()
x, y = digits.data.astype("float32") / 16, digits.target
train_x, train_y = x[:1437], y[:1437]
part = slice(rank, len(train_x) // size * size, size)  # as many for each
model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(hparams["hidden"], "relu"),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(10, "softmax"),
    ]
)
model.compile(keras.optimizers.Adam(hparams["learning_rate"]), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    train_x[part],
    train_y[part],
    batch_size=16,
    epochs=hparams["epochs"],
    validation_data=(x[1437:], y[1437:]),
    verbose=2 if rank == 0 else 0,
    callbacks=[TrainmasterCallback(report_every=10)],
)
