"""Show the synchronous parameter server in real processes: each step is checked against serial SGD, to the last bit.

    python scripts/run_sync_parameter_server.py --world-size 4 --num-steps 5 --parameter-dim 40 --shard-size 16

The first ranks are servers, the others workers. A linear model is fitted by SGD with momentum: each worker computes the gradient on its shard of
the data and pushes it, the servers add, update, and are pulled from. It is the code that jobs with `strategy: parameter_server` run. With
--checkpoint each server saves its shard and its momentum with a checksum, and another start goes on from there; with --kill-server-at the first
server is killed in that step, and all ranks start again from the newest checkpoint that every server has whole.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: in a checkout that is not installed

from scripts.protocol_runs import server_files
from scripts.protocol_runs.arguments import positive, require_startable
from scripts.protocol_runs.parameter_server import Checked, Run, SerialStep, run_rank, serial
from scripts.protocol_runs.processes import RankEnd, run_gang, store_of_generations


def parse(arguments: list[str] | None = None) -> Run:
    """Read the command line; what cannot be run ends the process with exit code 2 and says why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--world-size", type=positive, default=4, metavar="N", help="ranks, servers among them; default: %(default)s")
    add("--servers", type=positive, default=1, metavar="N", help="each has a part of the parameters; default: %(default)s")
    add("--num-steps", type=positive, default=5, metavar="N", help="default: %(default)s")
    add("--parameter-dim", type=positive, default=40, metavar="N", help="parameters of the model; default: %(default)s")
    add("--shard-size", type=positive, default=16, metavar="N", help="samples in each worker's shard of the data; default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    add("--checkpoint", type=Path, metavar="DIR", help="where servers save; a start goes on from the newest that is whole there")
    add("--checkpoint-every", type=positive, default=2, metavar="N", help="steps; default: %(default)s")
    add("--kill-server-at", type=positive, metavar="STEP", help="kill the first server in this step, once")
    given = parser.parse_args(arguments)
    require_startable(parser, given.world_size)
    if given.world_size <= given.servers:
        parser.error(f"--world-size {given.world_size} leaves no worker beside --servers {given.servers}; use {given.servers + 1} or more")
    if given.parameter_dim < given.servers:
        parser.error(f"--parameter-dim {given.parameter_dim} is fewer than --servers {given.servers}; each has at least one parameter")
    if given.kill_server_at is not None and given.kill_server_at > given.num_steps:
        parser.error(f"--kill-server-at {given.kill_server_at} is beyond the last step, --num-steps {given.num_steps}")
    return Run(
        given.world_size,
        given.servers,
        given.num_steps,
        given.parameter_dim,
        given.shard_size,
        given.seed,
        given.checkpoint,
        given.checkpoint_every,
        given.kill_server_at,
    )


@dataclass
class Books:
    """The checks of all ranks, by step, and their outcome."""

    run: Run
    expected: list[SerialStep]
    wrong: int = 0
    _updates: dict[int, list[Checked]] = field(default_factory=lambda: defaultdict(list))
    _pulls: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def note(self, rank: int, checked: Checked) -> None:
        """Take down what a rank has checked, and print a step once all ranks have come to it."""
        if not checked.is_right:
            self.wrong += 1
            print(f"WRONG  step {checked.step}, rank {rank}: differs from serial SGD; {checked.text}", flush=True)
        if checked.text.startswith("pulled"):
            self._pulls[checked.step] += 1
            if self._pulls[checked.step] == self.run.world_size:
                self._print_pull(checked)
        else:
            self._updates[checked.step].append(checked)
            if len(self._updates[checked.step]) == self.run.world_size:
                self._print_update(checked.step)

    def forget(self) -> None:
        """Forget what ranks have told of steps that they do again."""
        self._updates.clear()
        self._pulls.clear()

    def _print_update(self, step: int) -> None:
        serial_step, loss = self.expected[step], sum(each.loss for each in self._updates[step] if each.loss is not None)
        print(
            f"step {step}  loss {loss:.6f} (serial {serial_step.loss:.6f})  norm {serial_step.norm:.6f}, the same bits on every rank",
            flush=True,
        )
        for each in sorted(self._updates[step], key=lambda checked: checked.text):
            if each.text:
                print(f"        {each.text} {'=' if each.is_right else '!='} serial SGD", flush=True)

    def _print_pull(self, checked: Checked) -> None:
        known = checked.step and all(each.is_right for each in self._updates.get(checked.step, ()))
        if known:
            print(f"        all {self.run.world_size} ranks {checked.text} {'=' if checked.is_right else '!='} serial SGD", flush=True)


def generation(run: Run, books: Books, number: int, port: int, start: int) -> list[RankEnd]:
    """Run one generation of all ranks, and return the ends of those that failed."""
    gang = run_gang(run_rank, run.world_size, number, port, run, books.expected, start, number == 1)
    failed = []
    for news in gang:
        if not isinstance(news, RankEnd):
            books.note(news.rank, news.value)
        elif news.exit_code:
            failed.append(news)
    return failed


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if everything was as in one process, else 1."""
    run = parse(arguments)
    books = Books(run, serial(run))
    print(f"{run.servers} server(s) and {run.workers} worker(s), {run.dim} parameters, {run.samples} samples a worker", flush=True)
    with store_of_generations() as admit:
        for number in (1, 2):
            start = server_files.newest_step(run.folder, run.identity, run.servers, lambda why: print(f"WARNING {why}", flush=True))
            if start >= run.steps:
                print(
                    f"the checkpoint of step {start} is at or beyond the last step: nothing is left to do; use another --checkpoint folder"
                )
                return 0
            if start or number > 1:
                print(f"generation {number} goes on from {f'the checkpoint of step {start}' if start else 'the beginning'}", flush=True)
            failed = generation(run, books, number, admit(number), start)
            if not failed:
                break
            if number == 2 or not any(end.rank == 0 and end.exit_code == -9 for end in failed) or run.kill_at is None:
                print("\n".join(f"rank {end.rank} failed with exit code {end.exit_code}\n{end.error}" for end in failed), flush=True)
                return 1
            freed = len(failed) - 1
            print(f"server 0 was killed in step {run.kill_at}; the {freed} other ranks were freed by their broken connections", flush=True)
            books.forget()
    print("WRONG" if books.wrong else f"all right: {run.steps} steps, every value as in one process, to the last bit", flush=True)
    return 1 if books.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
