"""The actor that keeps an agent running on a machine of Ray's. It is sent by value: the machine needs the `paceline` command and nothing else."""

from __future__ import annotations

from typing import Any


def agent_keeper() -> Any:
    """Return the actor's class, for `ray.remote`. It is made in here so that Ray sends it along, and does not look for this module."""

    class AgentKeeper:
        def __init__(self, words: list[str], token: str, group: str) -> None:
            """Start the agent. The token is in its environment alone; the cards are those that Ray has chosen for this actor."""
            import os
            import threading

            self.process: Any = None
            self.ending = False
            environment = {**os.environ, "PACELINE_JOIN_TOKEN": token}
            threading.Thread(target=self._run, args=([os.path.expanduser(word) for word in words], environment, group), daemon=True).start()

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

        def _run(self, words: list[str], environment: dict[str, str], group: str) -> None:
            """Run the agent to its end. The thread that starts it lives as long as the actor: with the actor, it gets SIGTERM."""
            import ctypes
            import signal
            import subprocess
            from functools import partial

            import ray

            drain_with_actor = partial(ctypes.CDLL(None).prctl, 1, signal.SIGTERM)  # PR_SET_PDEATHSIG
            try:
                self.process = subprocess.Popen(
                    words, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=drain_with_actor
                )
                if self.ending:
                    self.process.terminate()
                self.process.wait()
            finally:
                self.ending = True
                data = words[words.index("--data") + 1]
                subprocess.run(["rm", "-rf", f"{data}/environments", f"{data}/bundles"], check=False)  # no other node uses them
                ray.util.remove_placement_group(ray.util.get_placement_group(group))  # and with it this actor

    return AgentKeeper
