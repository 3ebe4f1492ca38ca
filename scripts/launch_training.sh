#!/usr/bin/env bash
# Start a training script on this machine's share of the ranks, with torchrun:
#
#     scripts/launch_training.sh GPUS STRATEGY BATCH [SCRIPT [ARGS...]]
#
#     GPUS      ranks on this machine, one for each GPU (or CPU core where there is none)
#     STRATEGY  single, ddp or fsdp
#     BATCH     samples of each rank in a batch
#     SCRIPT    takes --strategy and --batch-size, as the default, examples/own_loop.py, does; ARGS are handed on to it
#
# On several machines run the same line on each, with NNODES (how many), NODE_RANK (0, 1, ...) and MASTER_ADDR (the address of the one with
# NODE_RANK=0); MASTER_PORT is a free port there, 29500 by default. PYTHON is the interpreter, by default the repository's own.
set -euo pipefail

usage() {
    sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

refuse() {
    echo "error: $1" >&2
    exit 2
}

# require_number NAME VALUE LEAST WAY_OUT
require_number() {
    [[ "$2" =~ ^(0|[1-9][0-9]{0,5})$ ]] || refuse "$1=$2 is not a whole number; $4"
    (($2 >= $3)) || refuse "$1=$2 is less than $3; $4"
}

root=$(cd "$(dirname "$0")/.." && pwd)
(($# >= 3)) || usage
gpus=$1 strategy=$2 batch=$3
shift 3
script=${1:-$root/examples/own_loop.py}
(($# == 0)) || shift
nodes=${NNODES:-1} node=${NODE_RANK:-0} port=${MASTER_PORT:-29500}

require_number GPUS "$gpus" 1 "give the ranks to start on this machine"
require_number BATCH "$batch" 1 "give the samples of each rank in a batch"
require_number NNODES "$nodes" 1 "set it to the number of machines, or leave it out for one"
require_number NODE_RANK "$node" 0 "set it to 0 on the first machine, 1 on the next, and so on"
require_number MASTER_PORT "$port" 1 "set it to a free port of the first machine, 1024 to 65535"
((port <= 65535)) || refuse "MASTER_PORT=$port is more than 65535; set it to a free port of the first machine"
((node < nodes)) || refuse "NODE_RANK=$node is none of NNODES=$nodes machines; number them from 0 to $((nodes - 1))"
case $strategy in
    single) ((gpus * nodes == 1)) || refuse "STRATEGY=single is one process, not $((gpus * nodes)); use ddp or fsdp" ;;
    ddp | fsdp) ;;
    *) refuse "STRATEGY=$strategy is not known; use single, ddp or fsdp" ;;
esac
[[ $nodes -eq 1 || -n "${MASTER_ADDR:-}" ]] || refuse "NNODES=$nodes but MASTER_ADDR is not set; set it to the address of the machine with NODE_RANK=0"
[[ -f "$script" ]] || refuse "SCRIPT=$script does not exist; give the path of a Python file"
python=${PYTHON:-$root/.venv/bin/python}
[[ -x "$(command -v "$python")" ]] || refuse "PYTHON=$python is not there; run scripts/setup, or set PYTHON to an interpreter that has torch"

if ((nodes == 1)); then
    meeting=(--standalone)
else
    meeting=(--nnodes "$nodes" --node-rank "$node" --master-addr "$MASTER_ADDR" --master-port "$port")
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m torch.distributed.run "${meeting[@]}" --nproc-per-node "$gpus" "$script" --strategy "$strategy" --batch-size "$batch" "$@"
