"""A small network reads scikit-learn's digits."""

import keras
from sklearn.datasets import load_digits
from trainmaster.keras import TrainmasterCallback

digits = load_digits()
x, y = digits.data.astype("float32") / 16, digits.target
model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(64, "relu"),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(10, "softmax"),
    ]
)
model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x[:1437], y[:1437], batch_size=16, epochs=4, validation_data=(x[1437:], y[1437:]), callbacks=[TrainmasterCallback()])
