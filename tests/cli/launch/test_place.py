"""Where `paceline run` may run: never on another machine's behalf, and never on GPUs that are not the user's."""

from __future__ import annotations

import pytest

from paceline.cli.errors import UnreachableError, UsageProblem
from paceline.cli.launch.place import coordinator_answers, require_enough_gpus
from paceline.cli.render.output import Format
from paceline.cli.session import Session
from paceline.cli.settings import ClientSettings, Setting
from paceline.monitoring.samples import Gpu
from tests.cli.fake_coordinator import Answer, FakeCoordinator

NOBODY = "http://127.0.0.1:9"


def session(url: str, source: str, key: str | None = "pk") -> Session:
    return Session(ClientSettings(Setting(url, source), Setting(key, source)), Format.TABLE)


def test_a_coordinator_that_answers_is_used(coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/auth/me", Answer(200, {}))
    assert coordinator_answers(session(coordinator.url, "project file x"))


@pytest.mark.parametrize(("source", "key"), [("default", None), ("default", "pk"), ("project file x", "pk"), ("user file x", "pk")])
def test_a_stack_of_this_machine_that_is_down_is_done_without(source: str, key: str | None) -> None:
    assert not coordinator_answers(session(NOBODY, source, key))


@pytest.mark.parametrize(
    ("url", "source"), [(NOBODY, "flag"), (NOBODY, "environment PACELINE_SERVER"), ("http://no-such-host.invalid", "user file x")]
)
def test_one_that_was_named_or_is_another_machine_s_has_to_answer(url: str, source: str) -> None:
    with pytest.raises(UnreachableError) as refused:
        coordinator_answers(session(url, source))
    assert "paceline run --private" in str(refused.value.hint)


CARDS = tuple(Gpu(index=index, uuid=f"GPU-{index}", name="NVIDIA Test", memory_bytes=1) for index in (2, 3))


def is_refused(ranks: int | str, cards: tuple[Gpu, ...]) -> bool:
    try:
        require_enough_gpus(ranks, cards)
    except UsageProblem:
        return True
    return False


def test_ranks_that_get_a_gpu_each_may_run() -> None:
    assert [is_refused(ranks, CARDS) for ranks in (1, 2, "gpu", "auto", 3)] == [False, False, False, False, True]
    assert not is_refused(64, ())  # on CPUs


def test_more_ranks_than_gpus_are_refused_with_the_way_out() -> None:
    with pytest.raises(
        UsageProblem, match=r"--nproc-per-node 3: a rank gets a whole GPU, and this machine offers 2: GPU 2 and GPU 3"
    ) as refused:
        require_enough_gpus(3, CARDS)
    assert "CUDA_VISIBLE_DEVICES= paceline run" in str(refused.value.hint)
