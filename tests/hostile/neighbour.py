"""The job beside: whatever others do, it must not lose a point, a line or a checkpoint, and never wait."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.stack import Stack, wait_until

CODE = Path(__file__).parent / "user_code"
CHECKPOINT_STEPS = 20
#: What it does next must be seen within this, on a crowded machine too.
NEWS_SECONDS = 10.0
PAUSE_SECONDS = 60.0


@dataclass
class Neighbour:
    stack: Stack
    job_id: str

    @classmethod
    def start(cls, stack: Stack) -> Neighbour:
        job_id = stack.submit(
            {
                "name": "neighbour",
                "entrypoint": "neighbour:make_task",
                "environment": {"working_directory": str(CODE)},
                "training": {"steps": 50_000, "global_batch_size": 1, "eval_every_steps": None},
                "checkpoint": {"every_steps": CHECKPOINT_STEPS, "keep_last": 1000, "keep_best": 0},
            }
        )
        stack.wait_for_step(job_id, 3)
        return cls(stack, job_id)

    def goes_on(self) -> None:
        """It trains in its first generation still, and news of it arrives that did not exist when this was called."""
        step = self.stack.job(self.job_id)["progress"]["step"]
        wait_until("a new step of the job beside", lambda: (self.points() or [0])[-1] > step + 1, NEWS_SECONDS)
        job = self.stack.job(self.job_id)
        assert (job["state"], job["restarts"], job["generation"]) == ("running", 0, 1), job
        points = self.points()
        assert points == list(range(1, len(points) + 1)), "points of the job beside are missing"

    def end(self) -> None:
        """Pause it, and find everything that it ever said, once."""
        self.stack.change("PUT", self.job_id, "pause")
        job = self.stack.wait_for_state(self.job_id, "paused", "failed", timeout=PAUSE_SECONDS)
        last = job["progress"]["last_checkpoint_step"]
        assert (job["state"], job["restarts"], job["generation"]) == ("paused", 0, 1), job
        wait_until("all points", lambda: self.points()[-1:] == [last], NEWS_SECONDS)
        assert self.points() == list(range(1, last + 1))
        batches = [line for line in self.lines() if line.startswith("batch ")]
        assert batches == [f"batch {number}" for number in range(1, len(batches) + 1)]
        assert len(batches) >= last
        assert self.checkpoints() == sorted({*range(CHECKPOINT_STEPS, last + 1, CHECKPOINT_STEPS), last})

    def points(self) -> list[int]:
        return [step for step, _ in self.stack.raw_curve(self.job_id)]

    def lines(self) -> list[str]:
        found: list[str] = []
        after = 0
        while True:
            page: dict[str, Any] = self.stack.get(f"/training/jobs/{self.job_id}/logs", limit=2000, after=after)
            found += [line["text"] for line in page["items"]]
            if not page["items"] or len(page["items"]) < 2000:
                return found
            after = page["items"][-1]["seq"]

    def checkpoints(self) -> list[int]:
        steps: list[int] = []
        following: dict[str, str] = {}
        while True:
            page = self.stack.get(f"/checkpoints/jobs/{self.job_id}", limit=200, **following)
            steps += [item["step"] for item in page["items"] if item["state"] == "committed"]
            if page["next_cursor"] is None:
                return sorted(steps)
            following = {"cursor": page["next_cursor"]}
