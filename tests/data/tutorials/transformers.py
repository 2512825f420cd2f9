"""A small residual network reads scikit-learn's digits."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments


class Digits(torch.utils.data.Dataset):
    def __init__(self, rows: slice) -> None:
        digits = load_digits()
        self.images = torch.tensor(digits.images[rows, None] / 16, dtype=torch.float32)
        self.labels = torch.tensor(digits.target[rows])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def accuracy(prediction) -> dict[str, float]:
    return {"accuracy": float((np.argmax(prediction.predictions, axis=1) == prediction.label_ids).mean())}


arguments = TrainingArguments(
    output_dir="output",
    num_train_epochs=4,
    per_device_train_batch_size=16,
    learning_rate=3e-3,
    eval_strategy="epoch",
    report_to="none",
    use_cpu=not torch.cuda.is_available(),
)
config = ResNetConfig(
    num_channels=1, embedding_size=16, hidden_sizes=[32, 64], depths=[1, 1], layer_type="basic", num_labels=10
)
model = ResNetForImageClassification(config)
train, test = Digits(slice(0, 1437)), Digits(slice(1437, None))
trainer = Trainer(model, arguments, train_dataset=train, eval_dataset=test, compute_metrics=accuracy)
trainer.train()
