"""The actor that keeps an agent running on a machine of Ray's. It is sent by value: the machine needs the `paceline` command and nothing else."""

from __future__ import annotations

from typing import Any


def agent_keeper() -> Any:
    """Return the actor's class, for `ray.remote`. It is made in here so that Ray sends it along, and does not look for this module."""

    class AgentKeeper:
        def __init__(self) -> None:
            self.process: Any = None
            self.ending = False

        def start(self, words: list[str], token: str, group: str) -> None:
            """Start the agent, once. The token is in its environment alone; the cards are those that Ray has chosen for this actor."""
            import os
            import subprocess
            import threading

            if self.process is not None or self.ending:
                return
            words = [os.path.expanduser(word) for word in words]
            environment = {**os.environ, "PACELINE_JOIN_TOKEN": token}
            self.process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
            threading.Thread(target=self._end_with_agent, args=(group,), daemon=True).start()

        def state(self) -> str:
            """Return `running`, `ending` or `ended`."""
            if self.process is not None and self.process.poll() is not None:
                return "ended"
            return "ending" if self.ending else "running"

        def end(self) -> None:
            """Drain the agent: SIGTERM is a notice for it."""
            self.ending = True
            if self.process is not None and self.process.poll() is None:
                self.process.terminate()

        def _end_with_agent(self, group: str) -> None:
            import ray

            self.process.wait()
            self.ending = True
            ray.util.remove_placement_group(ray.util.get_placement_group(group))  # and with it this actor

    return AgentKeeper
