"""The files that a rank leaves on its node, by name. No torch and no schema in here: readers of one file import this too."""

from __future__ import annotations

from pathlib import Path

from paceline.location import LINKED

#: The folder of a job with what its ranks leave in PACELINE_ARTIFACTS.
FILES = "files"


class RankFolder:
    """`<agent data>/jobs/<job>/g<generation>/rank<rank>/`: everything a rank leaves behind."""

    def __init__(self, agent_data: Path, job_id: str, generation: int, rank: int) -> None:
        self.path = agent_data / "jobs" / job_id / f"g{generation}" / f"rank{rank}"

    @classmethod
    def at(cls, path: Path) -> RankFolder:
        """The folder that `RankOrder.folder` names."""
        folder = cls.__new__(cls)
        folder.path = path
        return folder

    @property
    def job_id(self) -> str:
        return self.path.parents[1].name

    @property
    def metrics(self) -> Path:  # monitoring.spool of MetricRecord (msgspec JSON)
        return self.path / "metrics.spool"

    @property
    def events(self) -> Path:  # monitoring.spool of RankEvent
        return self.path / "events.spool"

    @property
    def output(self) -> Path:  # stdout and stderr as the process wrote them
        return self.path / "output.log"

    @property
    def result(self) -> Path:  # Result
        return self.path / "result.json"

    @property
    def error(self) -> Path:  # what torch's `record` writes of an exception, for torchrun
        return self.path / "error.json"

    @property
    def order(self) -> Path:  # RankOrder, written by the agent before the rank starts
        return self.path / "order.json"

    @property
    def preparing(
        self,
    ) -> Path:  # exists while the node prepares the rank's packages: its output is the build's, and no process has started
        return self.path / "preparing"

    @property
    def package(self) -> Path:  # on the PYTHONPATH of a program that would not find Paceline otherwise
        return self.path / LINKED

    @property
    def launch(self) -> Path:  # the variables and the directory that a script was started with: cluster.agent.exec_sessions.surroundings
        return self.path / "launch.json"

    @property
    def artifacts(self) -> Path:  # a folder of files, each with its note: monitoring.artifacts
        return self.path / "artifacts"

    @property
    def files(self) -> Path:
        """PACELINE_ARTIFACTS of the process that starts in this place. It outlives the generation, as the process may."""
        return self.path.parents[1] / FILES / f"{self.path.parent.name}.{self.path.name}"

    @property
    def logs(self) -> Path:  # PACELINE_LOG_DIR of the job's ranks on this node, the same in every generation
        return self.path.parents[1] / "logs"

    @property
    def work(self) -> Path:  # where a script starts whose spec names no working directory; as `logs`
        return self.path.parents[1] / "work"

    @property
    def staging(self) -> Path:  # checkpoints on their way to an object store or from it, of all the job's ranks on this node
        return self.path.parents[1] / "staging"

    @property
    def acknowledged(self) -> Path:  # how far the coordinator has it all; the agent's own bookkeeping
        return self.path / "acknowledged.json"

    @property
    def exit_status(self) -> Path:  # written by the spawner from waitpid: {"pid", "exit_code", "signal", "time"}
        return self.path / "exit.json"
