"""Faults of a parameter server's ranks by (rank, step, call), for the end of a copy of `faulty_task.py`, whose imports and names it uses.

served.json has, for each fault, the call of `ServedModel` before or behind which the rank dies (SIGKILL) or loses its connections ("break").
"""

# ruff: noqa: F821 - the names are those of `faulty_task.py`
from paceline.parallelism.parameter_server.served_model import ServedModel


def _struck(name: str) -> None:
    call = getattr(ServedModel, name)

    def striking(self, *arguments):  # type: ignore[no-untyped-def]
        step = self._next_step()
        _strike(f"before {name}", step)
        answer = call(self, *arguments)
        _strike(f"behind {name}", step)
        return answer

    setattr(ServedModel, name, striking)


def _strike(moment: str, step: int) -> None:
    for number, fault in enumerate(json.loads((FOLDER / "served.json").read_text())):  # type: ignore[name-defined]
        mark = FOLDER / f"served.{number}.done"  # type: ignore[name-defined]
        if (fault["rank"], fault["step"], fault["moment"]) == (RANK, step, moment) and not mark.exists():  # type: ignore[name-defined]
            mark.touch()
            if fault["kind"] == "break":
                raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer (a fault on order)")  # as gloo words it
            os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[name-defined]


for _name in ("pull", "finish_step", "clip"):
    _struck(_name)
