"""The table of causes: each says whether another attempt can help."""

from __future__ import annotations

import pytest

from trainmaster.master.lifecycle.causes import CAUSES, Retry, cause_of, final_why


@pytest.mark.parametrize(
    ("exit_code", "evidence", "name", "retry"),
    [
        (1, "trainmaster.core.errors.UnusableStorage: checkpoint storage of type 's3'", CAUSES[0].name, Retry.NEVER),
        (1, "SyntaxError: invalid syntax", CAUSES[1].name, Retry.NEVER),
        (1, "def broken(: | ^ | SyntaxError: invalid syntax", CAUSES[1].name, Retry.NEVER),
        (1, "IndentationError: unexpected indent", CAUSES[1].name, Retry.NEVER),
        (127, "sh: 1: pyhton3: not found", CAUSES[2].name, Retry.AGAIN),
        (126, "", CAUSES[2].name, Retry.AGAIN),
        (1, "ModuleNotFoundError: No module named 'torch'", CAUSES[3].name, Retry.AGAIN),
        (1, "torch.cuda.OutOfMemoryError: CUDA out of memory", CAUSES[4].name, Retry.AGAIN),
    ],
)
def test_known_causes(exit_code: int, evidence: str, name: str, retry: Retry) -> None:
    cause = cause_of(exit_code, evidence)
    assert cause is not None
    assert (cause.name, cause.retry) == (name, retry)
    assert bool(final_why(exit_code, evidence)) == (retry is Retry.NEVER)


@pytest.mark.parametrize(
    ("exit_code", "evidence"),
    [(1, "ValueError: SyntaxError: in data"), (1, "a SyntaxError | happened"), (3, ""), (137, "Killed")],
)
def test_all_others_are_tried_again(exit_code: int, evidence: str) -> None:
    assert cause_of(exit_code, evidence) is None
    assert final_why(exit_code, evidence) == ""


def test_a_cause_that_is_final_says_why() -> None:
    assert all(bool(cause.why) == (cause.retry is Retry.NEVER) for cause in CAUSES)
