"""Each optimizer of the spec on two ranks, whole and in shards, against one process; and what cannot be sharded is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from paceline.training.spec.job import JobSpec
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt
from tests.training.test_parity import FAST, assert_same_training

TOLERANCE = 1e-5
OPTIMIZERS = {
    "nadam": {"kind": "nadam", "lr": 1e-2, "weight_decay": 0.1},
    "rmsprop": {"kind": "rmsprop", "lr": 1e-3, "weight_decay": 0.1},
    "adafactor": {"kind": "adafactor", "lr": 1e-2, "weight_decay": 0.1},
}
#: Whole models and shards of them.
PLANS = {"nadam": ("ddp", "fsdp"), "rmsprop": ("ddp", "fsdp"), "adafactor": ("ddp",)}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers_train_as_in_one_process(kind: str, make_job: MakeJob) -> None:
    changes = FAST | {"optimizer": OPTIMIZERS[kind]}
    alone = make_job(tiny_gpt() | changes, "alone")
    expected = alone.run()[0]
    assert expected.exit_code == 0, expected.output
    for strategy in PLANS[kind]:
        together = make_job(tiny_gpt(2) | changes | {"parallelism": {"strategy": strategy}}, strategy)
        ends = together.run(2)
        assert [end.exit_code for end in ends] == [0, 0], ends[0].output
        assert_same_training((alone, expected), (together, ends[0]), TOLERANCE)


@pytest.mark.parametrize("parallelism", [{"strategy": "fsdp"}, {"strategy": "ddp", "tensor": 2}])
def test_adafactor_of_parts_of_matrices_is_refused(parallelism: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"optimizer.kind=adafactor with .* is not offered: its state is a row and a column"):
        JobSpec.model_validate(tiny_gpt(2) | {"optimizer": OPTIMIZERS["adafactor"], "parallelism": parallelism})
