"""scikit-learn's digits with TensorFlow's MultiWorkerMirroredStrategy: one worker a node, which uses all its GPUs."""

import tensorflow as tf
from sklearn.datasets import load_digits

from trainmaster import core

DEFAULTS = {"learning_rate": 0.002, "hidden": 64, "epochs": 6}
BATCH = 32  # of all workers together


class Reporter(tf.keras.callbacks.Callback):
    """Reports after each epoch, and saves the model when the training ends or is preempted."""

    def __init__(self, context: core.Context, saved: tf.train.Checkpoint, steps: int, epochs: int) -> None:
        super().__init__()
        self.context, self.saved, self.steps, self.epochs = context, saved, steps, epochs

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        done, steps = epoch + 1, (epoch + 1) * self.steps
        workers, rank = self.context.distributed.size, self.context.distributed.rank
        # All workers call; the chief's reports count.
        self.context.train.report_training_metrics(steps, {"loss": logs["loss"], "workers": workers})
        error = 1.0 - logs["val_accuracy"]
        self.context.train.report_validation_metrics(steps, {"validation_error": error, "epochs": done})
        self.context.train.report_progress(done / self.epochs)
        leave = self.context.preempt.should_preempt()  # all workers get the same answer
        if leave or done == self.epochs:
            # TensorFlow requires all workers to save; their content is the same, so one file is read again.
            metadata = {"steps_completed": steps, "epochs": done}
            with self.context.checkpoint.store_path(metadata, shard=True) as (path, _):
                self.saved.write(str(path / f"worker{rank}"))
        self.model.stop_training = leave


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = info.trial.hparams if info else DEFAULTS
    # Reads TF_CONFIG, which the launcher sets: one worker alone, or with those of the other nodes.
    distributed, strategy = core.DistributedContext.from_tf_config()
    tf.keras.utils.set_random_seed(info.trial.trial_seed % 2**32 if info else 0)

    digits = load_digits()
    x, y = digits.data / 16.0, digits.target
    batches = 1437 // BATCH
    data = tf.data.Dataset.from_tensor_slices((x[:1437], y[:1437])).shuffle(1437, seed=0).repeat().batch(BATCH)
    tests = tf.data.Dataset.from_tensor_slices((x[1437:], y[1437:])).batch(120)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA

    with strategy.scope():
        layers = [tf.keras.layers.Dense(hparams["hidden"], activation="relu"), tf.keras.layers.Dense(10)]
        model = tf.keras.Sequential([tf.keras.Input((64,)), *layers])
        optimizer = tf.keras.optimizers.Adam(hparams["learning_rate"])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
        saved = tf.train.Checkpoint(model=model, optimizer=optimizer)

    with core.init(distributed=distributed, tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        done = 0
        if info and info.latest_checkpoint:  # this trial ran before: resume from its checkpoint
            with context.checkpoint.restore_path(info.latest_checkpoint) as path, strategy.scope():
                optimizer.build(model.trainable_variables)
                saved.read(str(path / "worker0")).assert_existing_objects_matched()
            done = context.checkpoint.get_metadata(info.latest_checkpoint)["epochs"]
        model.fit(
            data.with_options(options),
            steps_per_epoch=batches,
            validation_data=tests.with_options(options),
            initial_epoch=done,
            epochs=hparams["epochs"],
            verbose=2 if distributed.rank == 0 else 0,
            callbacks=[Reporter(context, saved, batches, hparams["epochs"])],
        )


if __name__ == "__main__":
    main()
