"""torchrun's command line as `paceline run` reads it, beside torch's own parser."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.run import get_args_parser, parse_min_max_nnodes

from paceline.cli.errors import UsageProblem
from paceline.cli.launch.arguments import OPTIONS, Launch, divide, parse

OWN = {"--env": False, "--detach": True, "-d": True, "--server": False, "--json": True, "-h": True, "--help": True}

LINES = [
    "train.py",
    "train.py --lr 0.1",
    "--nproc-per-node 2 train.py --lr 0.1",
    "--nproc_per_node=2 train.py --nproc-per-node 8 -m --",
    "--nnodes 2 --nproc-per-node 1 -m my_project.train --epochs 3",
    "--nnodes 1:4 --max-restarts 3 train.py",
    "--nnodes=2:2 --nproc-per-node gpu train.py",
    "--nproc-per-node auto --module my.train -x",
    "--standalone --nproc-per-node=2 train.py --lr=.0003 1e4",
    "--no-python --nproc-per-node 2 ./run.sh a",
    "--no_python bash -c true",
    "--run-path /abs/train.py",
    "--max-restarts 3 --monitor-interval 5 train.py",
    "--max_restarts=0 train.py",
    "--rdzv-backend c10d --rdzv_endpoint host:29500 --rdzv-id 7 --rdzv-conf a=1,b=2 train.py",
    "--master-addr 10.0.0.1 --master_port 29500 --node-rank 0 train.py",
    "--local-ranks-filter 0,1 --nproc-per-node 4 train.py",
    "-r 3 -t 0:1 --log-dir logs train.py",
    "-r3 -t3 train.py",
    "--start-method fork --signals-to-handle SIGTERM --role trainer --local-addr 10.0.0.2 train.py",
    "--virtual-local-rank --nproc_per_node 2 train.py",
    "--shutdown-timeout 60 --event-log-handler console --numa-binding node train.py",
    "--duplicate-stdout-filters a,b --duplicate_stderr_filters c train.py",
    "--standal train.py",
]


def as_torch_reads(words: list[str]) -> dict[str, Any]:
    options = get_args_parser().parse_args(words)
    least, most = parse_min_max_nnodes(options.nnodes)
    form = "path" if options.run_path else "module" if options.module else "command" if options.no_python else "path"
    return {
        "form": form,
        "target": options.training_script,
        "arguments": tuple(options.training_script_args),
        "nodes": most,
        "fewest_nodes": least,
        "ranks_per_node": options.nproc_per_node,
        "max_restarts": options.max_restarts,
        "virtual_local_rank": options.virtual_local_rank,
    }


def as_we_read(launch: Launch) -> dict[str, Any]:
    names = ("form", "target", "arguments", "nodes", "fewest_nodes", "max_restarts", "virtual_local_rank")
    return {name: getattr(launch, name) for name in names} | {"ranks_per_node": str(launch.ranks_per_node)}


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_means_what_it_means_to_torchrun(line: str) -> None:
    assert as_we_read(parse(line.split())) == as_torch_reads(line.split())


LAUNCHER_WORDS = st.sampled_from(
    [
        ["--nnodes", "3"],
        ["--nnodes=2:2"],
        ["--nnodes=1:4"],
        ["--nproc-per-node", "4"],
        ["--nproc_per_node=gpu"],
        ["--max-restarts=2"],
        ["-m"],
        ["--standalone"],
        ["--rdzv_id", "x"],
        ["--master-port", "1"],
        ["-r3"],
        ["--role=a=b"],
    ]
)
SCRIPT_WORDS = st.lists(st.text(min_size=1, max_size=8), max_size=5)


@given(st.lists(LAUNCHER_WORDS, max_size=5), SCRIPT_WORDS)
def test_any_order_of_options_and_any_words_of_the_script(options: list[list[str]], script: list[str]) -> None:
    words = [*(word for option in options for word in option), "train", *script]
    launch = parse(words)
    assert launch.arguments == tuple(script)
    if "--" not in script:  # argparse of some versions of Python swallows it
        assert as_we_read(launch) == as_torch_reads(words)


def test_every_option_of_torch_is_known_in_every_spelling() -> None:
    parser = get_args_parser()
    theirs = {spelling for action in parser._actions for spelling in action.option_strings} - {"-h", "--help"}
    assert theirs == {spelling for option in OPTIONS for spelling in option.spellings}


def test_flags_are_flags_and_the_others_take_a_value() -> None:
    flags = {spelling for action in get_args_parser()._actions if action.nargs == 0 for spelling in action.option_strings}
    assert flags - {"-h", "--help"} == {spelling for option in OPTIONS if option.is_flag for spelling in option.spellings}


def test_variables_preset_options_as_for_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "4", "PET_MODULE": "1", "PET_NO_PYTHON": "0", "PET_MAX_RESTARTS": "5"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for line in ("my.train", "--nnodes 3 my.train"):
        assert as_we_read(parse(line.split(), variables)) == as_torch_reads(line.split())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "there is no script to run"),
        ("--nproc-per-node 2", "there is no script to run"),
        ("--nproc-per-node", "--nproc-per-node has no value"),
        ("--rdzv-id --standalone train.py", "--rdzv-id has no value"),
        ("--nproc-per-node many train.py", "--nproc-per-node=many is neither a number from 1 up nor one of auto, cpu, gpu, xpu"),
        ("--nproc-per-node 0 train.py", "--nproc-per-node=0 is neither"),
        ("--nnodes 4:1 train.py", "--nnodes=4:1: the fewest nodes are more than the most"),
        ("--nnodes 1:2:3 train.py", "--nnodes=1:2:3 is neither a number of nodes nor MIN:MAX"),
        ("--nnodes 0 train.py", "--nnodes=0 is neither"),
        ("--max-restarts 1001 train.py", "--max-restarts=1001 is out of range; give a number from 0 to 1000"),
        ("--max-restarts x train.py", "--max-restarts=x is no whole number"),
        ("--node-rank 1 train.py", "--node-rank=1: 'paceline run' starts the ranks of all nodes"),
        ("--logs-specs mine train.py", "--logs-specs cannot be honoured"),
        ("--lr 0.1 train.py", "--lr is no option of torchrun"),
        ("-x train.py", "-x is no option of torchrun"),
        ("--standalone=1 train.py", "--standalone=1: --standalone takes no value"),
        ("--local-ranks-filter a train.py", "--local-ranks-filter=a is no list of ranks"),
        ("-m --no-python train", "--module and --no-python rule each other out"),
    ],
)
def test_what_cannot_be_honoured_is_refused(line: str, says: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        parse(line.split())
    assert refused.value.message.startswith(says)


def test_an_empty_word_is_no_script() -> None:
    """`paceline run "$SCRIPT"`, with a variable that is not set, ran the folder."""
    with pytest.raises(UsageProblem, match="there is no script to run"):
        parse(["--nproc-per-node", "2", "", "--lr", "1"])


def test_a_misspelled_option_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageProblem) as refused:
        parse(["--nproc-pernode", "2", "train.py"])
    assert "did you mean --nproc-per-node?" in str(refused.value.hint)


def test_what_paceline_does_itself_is_one_note() -> None:
    launch = parse(["--standalone", "--rdzv_backend=c10d", "--master-port", "1", "--node-rank", "0", "--role", "trainer", "train.py"])
    assert launch.notes == (
        "note: --standalone, --rdzv_backend, --master-port, --node-rank: not needed, Paceline brings the ranks together by itself",
        "note: --role has no effect: ROLE_NAME is 'default' for every rank",
    )


def test_options_for_log_files_are_told_apart_unless_they_ask_for_nothing() -> None:
    assert parse(["-r", "3", "--tee=0", "--log-dir", "x", "train.py"]).log_files == ("-r", "--log-dir")


@pytest.mark.parametrize(
    ("line", "mine", "launcher"),
    [
        ("--nproc-per-node 2 --detach train.py --json", "--detach", "--nproc-per-node 2 train.py --json"),
        ("--env A=1 --standalone --env B train.py", "--env A=1 --env B", "--standalone train.py"),
        ("--server=http://x -- --nproc-per-node 2 train.py --env C", "--server=http://x", "--nproc-per-node 2 train.py --env C"),
        ("-- --detach train.py", "", "--detach train.py"),
        ("--rdzv-id --json train.py", "", "--rdzv-id --json train.py"),
        ("-h", "-h", ""),
        ("train.py -h", "", "train.py -h"),
        ("train.py -- -h", "", "train.py -- -h"),
        ("--rdzv-id=7 -r3 -m -d pkg", "-d", "--rdzv-id=7 -r3 -m pkg"),
    ],
)
def test_own_options_stand_among_those_of_torchrun(line: str, mine: str, launcher: str) -> None:
    assert divide(line.split(), OWN) == (mine.split(), launcher.split())


def test_nothing_is_lost_between_the_two() -> None:
    for line in LINES:
        assert divide(line.split(), OWN) == ([], line.split())
