"""`determined.pytorch.dsat`, which trainmaster does not have."""

raise ImportError(
    "determined.pytorch.dsat (DeepSpeed's autotune) is not part of trainmaster: search over the fields of the "
    "DeepSpeed configuration as hyperparameters instead"
)
