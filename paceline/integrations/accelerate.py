"""A tracker for Accelerate: `Accelerator(log_with=PacelineTracker())`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerate.tracking import GeneralTracker, on_main_process

from paceline.tracking import Run, current


class PacelineTracker(GeneralTracker):
    """Records the values given to `accelerator.log` on the main process as curves of the job.

    Without a `step`, calls are counted from 0.
    """

    name = "paceline"
    requires_logging_directory = False

    @property
    def tracker(self) -> Run:
        """The run that `paceline.log` and `paceline.config` belong to as well."""
        return current.get_or_begin()

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Record the configuration in the job's history."""
        self.tracker.config.update(values)
        self.tracker.record_config()

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Record `values` at `step`."""
        self.tracker.log(values, step)

    @on_main_process
    def finish(self) -> None:
        """End the run, with everything it has logged on the disk."""
        self.tracker.finish()
