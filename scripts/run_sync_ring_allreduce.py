"""Show Paceline's own ring all-reduce in real processes: each step is checked against serial SGD, to the last bit.

    python scripts/run_sync_ring_allreduce.py --world-size 4 --num-steps 6 --parameter-dim 8 --shard-size 5

Each rank has a copy of a linear model and a shard of the data. In every step it computes its gradient, which is summed over a ring of TCP
connections (reduce-scatter, then all-gather), and updates its copy. It is the code that jobs with `communication: {algorithm: ring}` run. The
serial twin adds in the order of the ring, so that equal means equal bits. With --kill-rank-at the last rank is killed in that step: the others are
freed at once, and say what they were waiting for.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: in a checkout that is not installed

from scripts.protocol_runs.arguments import positive, require_startable
from scripts.protocol_runs.processes import RankEnd, run_gang, store_of_generations
from scripts.protocol_runs.ring import RankStep, Run, crc_of, run_rank, serial

#: What a freed rank says; torch puts words before it and lines below it.
ERROR = re.compile(r"(PeerLostError: .*)$", re.MULTILINE)


def parse(arguments: list[str] | None = None) -> Run:
    """Read the command line; what cannot be run ends the process with exit code 2 and says why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--world-size", type=positive, default=4, metavar="N", help="ranks; default: %(default)s")
    add("--num-steps", type=positive, default=6, metavar="N", help="default: %(default)s")
    add("--parameter-dim", type=positive, default=8, metavar="N", help="parameters of the model; default: %(default)s")
    add("--shard-size", type=positive, default=5, metavar="N", help="samples in each rank's shard of the data; default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    add("--kill-rank-at", type=positive, metavar="STEP", help="kill the last rank in this step")
    given = parser.parse_args(arguments)
    require_startable(parser, given.world_size)
    if given.world_size == 1:
        parser.error("--world-size 1 is no ring; use 2 or more")
    if given.kill_rank_at is not None and given.kill_rank_at > given.num_steps:
        parser.error(f"--kill-rank-at {given.kill_rank_at} is beyond the last step, --num-steps {given.num_steps}")
    return Run(given.world_size, given.num_steps, given.parameter_dim, given.shard_size, given.seed, given.kill_rank_at)


def check(run: Run, expected: RankStep, told: list[RankStep]) -> bool:
    """Print a step that all ranks have told of, and return whether each has what the serial twin has."""
    alike = all((each.gradient, each.parameters) == (expected.gradient, expected.parameters) for each in told)
    loss = sum(each.loss for each in told)
    verdict = "=" if alike else "!="
    print(
        f"{'' if alike else 'WRONG  '}step {expected.step}  loss {loss:.6f} (serial {expected.loss:.6f})  sum of gradients {crc_of(told[0].gradient)}, "
        f"parameters {crc_of(told[0].parameters)} on {len(told)} ranks {verdict} serial SGD; {told[0].sent_bytes} bytes sent by rank 0",
        flush=True,
    )
    return alike


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if everything was as in one process, or a killed rank freed the others; else 1."""
    run = parse(arguments)
    expected, told = serial(run), defaultdict[int, list[RankStep]](list)
    print(f"{run.world_size} ranks in a ring, {run.dim} parameters, {run.samples} samples a rank", flush=True)
    is_right, failed = True, []
    with store_of_generations() as admit:
        for news in run_gang(run_rank, run.world_size, 1, admit(1), run):
            if isinstance(news, RankEnd):
                failed += [news] if news.exit_code else []
                continue
            step: RankStep = news.value
            told[step.step].append(step)
            if len(told[step.step]) == run.world_size:
                is_right &= check(run, expected[step.step - 1], told[step.step])
    if failed and run.kill_at is not None:
        freed = [end for end in failed if end.rank != run.world_size - 1]
        print(
            f"rank {run.world_size - 1} was killed in step {run.kill_at}; the {len(freed)} other ranks were freed by their broken connections:"
        )
        for end in sorted(freed, key=lambda end: end.rank):
            print(f"  rank {end.rank}: {(ERROR.findall(end.error) or [f'exit code {end.exit_code}'])[0]}")
        return 0 if is_right and len(freed) == run.world_size - 1 else 1
    if failed:
        print("\n".join(f"rank {end.rank} failed with exit code {end.exit_code}\n{end.error}" for end in failed), flush=True)
        return 1
    print(f"all right: {run.steps} steps, every value as in one process, to the last bit" if is_right else "WRONG", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
