"""Messages of exceptions: what a DataLoader's worker has raised is told by its own words, and one line is one line."""

from __future__ import annotations

import pytest
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset

from paceline.training.optim.bad_loss import BadLossError, BadLossVerdict, LossNotFiniteError, LossSpikeError
from paceline.training.reporting.failure_kinds import first_line, in_words, original
from paceline.training.reporting.failures import describe_script


class Broken(Dataset[int]):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        raise self._error


class OddError(Exception):
    """torch cannot make one from a text alone, and raises a RuntimeError in its place."""

    def __init__(self, sample: int, why: str) -> None:
        super().__init__(sample, why)

    def __str__(self) -> str:
        return "sample {} is {}".format(*self.args)


def test_what_a_dataloaders_worker_raised_is_told_in_its_own_words() -> None:
    """It was fifteen lines, of which the last named no rank."""
    with pytest.raises(IndexError) as caught:
        next(iter(DataLoader(Broken(IndexError("sample 0 is broken")), num_workers=1)))
    report = describe_script(caught.value, 1, world_size=4)
    assert (report.exception, report.message) == ("IndexError", "sample 0 is broken (in DataLoader worker process 0)")
    assert "Original Traceback" in report.traceback
    assert report.where.startswith("__getitem__ in test_failure_kinds.py:")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("label"), "'label' (in DataLoader worker process 2)"),
        (ValueError(), "ValueError (in DataLoader worker process 2)"),
        (ValueError("first\nValueError: second"), "first (in DataLoader worker process 2)\nValueError: second"),
        (OddError(3, "odd"), "OddError: sample 3 is odd (in DataLoader worker process 2)"),
    ],
)
def test_the_original_of_a_carried_exception(error: Exception, told: str) -> None:
    with pytest.raises(type(error)) as there:
        raise error
    with pytest.raises((type(error), RuntimeError)) as caught:
        ExceptionWrapper((there.type, there.value, there.tb), where="in DataLoader worker process 2").reraise()
    assert original(type(caught.value).__name__, str(caught.value)) == told


@pytest.mark.parametrize(("error", "kind"), [(LossNotFiniteError, "loss_not_finite"), (LossSpikeError, "loss_spike")])
def test_a_script_that_our_trainer_stops_for_its_loss_is_not_taken_for_one_that_broke(error: type[BadLossError], kind: str) -> None:
    """An exception is worth another start, and this one would come again."""
    bad = BadLossVerdict("spike", 9.0, 1.0, 2.0, "stop", ())
    report = describe_script(error("the loss of step 7 is a spike", bad), 1, world_size=4)
    assert (report.kind, report.message) == (kind, "the loss of step 7 is a spike")


def test_other_messages_stay_as_they_are() -> None:
    for message in ("", "no column 'y'", "Caught in the act.\nOriginal sin", "several\nlines"):
        assert original("ValueError", message) == message


@pytest.mark.parametrize(("text", "line"), [("", ""), ("one", "one"), ("one\n", "one"), ("one\ntwo\nthree", "one …")])
def test_one_line_of_a_text(text: str, line: str) -> None:
    assert first_line(text) == line


def test_a_full_shared_memory_is_not_cured_by_a_smaller_model() -> None:
    assert in_words("out_of_memory", "CUDA out of memory") == "out of memory: CUDA out of memory; use a smaller micro-batch or model"
    assert "--shm-size" in in_words("out_of_memory", "unable to allocate shared memory(shm) for file </torch_7_1_0>: Success (0)")
