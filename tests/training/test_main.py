"""The entry of a rank."""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.training.link import RankOrder, Result
from paceline.training.main import run_rank
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from tests.ranks import make_world
from tests.training.specs import tiny_gpt


def test_a_rank_with_a_spec_of_another_version_ends_with_the_reason(tmp_path: Path) -> None:
    spec = StoredSpec(tiny_gpt(steps=1) | {"from_tomorrow": 1})
    order = RankOrder(spec=spec, world=make_world(0, 1, 0, tmp_path), folder=str(tmp_path), agent_socket=str(tmp_path / "socket"))
    assert run_rank(order) == 1
    result = msgspec.json.decode(RankFolder.at(tmp_path).result.read_bytes(), type=Result)
    assert (result.outcome, result.failure and result.failure.kind) == ("failed", "invalid_input")
    assert result.failure is not None
    assert "`from_tomorrow` is not a field of a job spec" in result.failure.message
