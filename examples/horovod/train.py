"""scikit-learn's digits with Keras and Horovod: each worker trains on its share, gradients are averaged."""

import horovod.tensorflow.keras as hvd
import tensorflow as tf
from sklearn.datasets import load_digits

from trainmaster import core

DEFAULTS = {"learning_rate": 0.002, "hidden": 64, "epochs": 6}
BATCH = 16  # of each worker


class Reporter(tf.keras.callbacks.Callback):
    """Reports after each epoch, and saves the model when the training ends or is preempted."""

    def __init__(self, context: core.Context, saved: tf.train.Checkpoint, steps: int, epochs: int) -> None:
        super().__init__()
        self.context, self.saved, self.steps, self.epochs = context, saved, steps, epochs

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        done, steps = epoch + 1, (epoch + 1) * self.steps
        # All workers call; the chief's reports count.
        self.context.train.report_training_metrics(steps, {"loss": logs["loss"], "workers": hvd.size()})
        error = 1.0 - logs["val_accuracy"]
        self.context.train.report_validation_metrics(steps, {"validation_error": error, "epochs": done})
        self.context.train.report_progress(done / self.epochs)
        leave = self.context.preempt.should_preempt()  # all workers get the same answer
        if hvd.rank() == 0 and (leave or done == self.epochs):
            with self.context.checkpoint.store_path({"steps_completed": steps, "epochs": done}) as (path, _):
                self.saved.write(str(path / "model"))
        self.model.stop_training = leave


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = info.trial.hparams if info else DEFAULTS
    hvd.init()
    tf.keras.utils.set_random_seed(info.trial.trial_seed % 2**32 if info else 0)
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[hvd.local_rank() :][:1], "GPU")

    digits = load_digits()
    x, y = digits.data / 16.0, digits.target
    share = slice(hvd.rank(), 1437, hvd.size())
    batches = 1437 // hvd.size() // BATCH  # as many on every worker

    layers = [tf.keras.layers.Dense(hparams["hidden"], activation="relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential([tf.keras.Input((64,)), *layers])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(hparams["learning_rate"]))  # averages gradients
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    saved = tf.train.Checkpoint(model=model, optimizer=optimizer)

    distributed = core.DistributedContext.from_horovod(hvd)
    with core.init(distributed=distributed, tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        done = 0
        if info and info.latest_checkpoint:  # this trial ran before: resume from its checkpoint
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                optimizer.build(model.trainable_variables)
                saved.read(str(path / "model")).assert_existing_objects_matched()
            done = context.checkpoint.get_metadata(info.latest_checkpoint)["epochs"]
        model.fit(
            *(x[share], y[share]),
            batch_size=BATCH,
            steps_per_epoch=batches,
            validation_data=(x[1437:], y[1437:]),
            initial_epoch=done,
            epochs=hparams["epochs"],
            verbose=2 if hvd.rank() == 0 else 0,
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # all workers begin with the chief's weights
                hvd.callbacks.MetricAverageCallback(),
                Reporter(context, saved, batches, hparams["epochs"]),
            ],
        )


if __name__ == "__main__":
    main()
