"""Mixed precision of a trial: a model's forward pass under autocast, with results in full precision."""

from __future__ import annotations

from typing import Any

import torch


def autocast(model: torch.nn.Module, device_type: str, dtype: torch.dtype) -> None:
    """Let a model compute under autocast. What it returns has full precision, so that losses are computed in it.

    Args:
        model: Changed in place.
        device_type: "cuda" or "cpu".
        dtype: `torch.float16`, which only GPUs compute in, or `torch.bfloat16`.
    """
    inner = model.forward
    enabled = device_type == "cuda" or dtype is torch.bfloat16

    def forward(*arguments: Any, **named: Any) -> Any:
        with torch.autocast(device_type=device_type, dtype=dtype, enabled=enabled):
            result = inner(*arguments, **named)
        return _in_full(result, dtype)

    model.forward = forward


def _in_full(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype is dtype else value
    if isinstance(value, dict):
        return type(value)((name, _in_full(each, dtype)) for name, each in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_in_full(each, dtype) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_in_full(each, dtype) for each in value)
    return value
