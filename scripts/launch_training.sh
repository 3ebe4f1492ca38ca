#!/usr/bin/env bash
# Start a training script on this machine's share of the ranks, with torchrun:
#
#     scripts/launch_training.sh GPUS STRATEGY BATCH [SCRIPT [ARGS...]]
#
#     GPUS      ranks on this machine, one for each GPU (or CPU core where there is none)
#     STRATEGY  single, ddp, fsdp or auto
#     BATCH     samples of each rank in a batch
#     SCRIPT    takes --strategy and --batch-size, as the default, examples/own_loop.py, does; ARGS are handed on to it
#
# On several machines run the same line on each, with NNODES (how many), NODE_RANK (0, 1, ...) and MASTER_ADDR (the address of the one with
# NODE_RANK=0); MASTER_PORT is a free port there, 29500 by default. Without NNODES, but with both of the others, GPUS are those of all machines
# together, more than this one has: each has GPUS_PER_NODE of them, by default as many as this one. PYTHON is the interpreter, by default the
# repository's own.
set -euo pipefail

usage() {
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
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
node=${NODE_RANK:-0} port=${MASTER_PORT:-29500}
python=${PYTHON:-$root/.venv/bin/python}
[[ -x "$(command -v "$python")" ]] || refuse "PYTHON=$python is not there; run scripts/setup, or set PYTHON to an interpreter that has torch"

require_number GPUS "$gpus" 1 "give the ranks to start on this machine"
require_number BATCH "$batch" 1 "give the samples of each rank in a batch"
# With MASTER_ADDR and NODE_RANK alone, GPUS is the whole world: never start another world than was meant.
if [[ -z "${NNODES:-}" && -n "${MASTER_ADDR:-}${NODE_RANK:-}" ]]; then
    [[ -n "${MASTER_ADDR:-}" ]] || refuse "NODE_RANK=$NODE_RANK but MASTER_ADDR is not set; set it to the address of the machine with NODE_RANK=0"
    [[ -n "${NODE_RANK:-}" ]] || refuse "MASTER_ADDR=$MASTER_ADDR but neither NNODES nor NODE_RANK is set; set NODE_RANK to 0 on the first machine, 1 on the next, or unset MASTER_ADDR to train on this machine alone"
    here=${GPUS_PER_NODE:-$("$python" -c "import torch; print(torch.cuda.device_count())")}
    [[ "$here" != 0 || -n "${GPUS_PER_NODE:-}" ]] || refuse "this machine has no GPU to tell how GPUS=$gpus are shared out; set GPUS_PER_NODE to the ranks of each machine, or NNODES to the number of machines"
    require_number GPUS_PER_NODE "$here" 1 "set it to the ranks of each machine"
    ((gpus % here == 0)) || refuse "GPUS=$gpus, of all machines together, cannot be shared out with $here on each; give a multiple of $here, or set NNODES and give those of this machine"
    ((gpus > here)) || refuse "GPUS=$gpus are all on this machine, which has $here, and MASTER_ADDR=$MASTER_ADDR speaks of several; give the GPUs of all machines together, or set NNODES to the number of machines (1: this one alone)"
    NNODES=$((gpus / here)) gpus=$here
fi
nodes=${NNODES:-1}
require_number NNODES "$nodes" 1 "set it to the number of machines, or leave it out for one"
require_number NODE_RANK "$node" 0 "set it to 0 on the first machine, 1 on the next, and so on"
require_number MASTER_PORT "$port" 1 "set it to a free port of the first machine, 1024 to 65535"
((port <= 65535)) || refuse "MASTER_PORT=$port is more than 65535; set it to a free port of the first machine"
((node < nodes)) || refuse "NODE_RANK=$node is none of NNODES=$nodes machines; number them from 0 to $((nodes - 1))"
case $strategy in
    single) ((gpus * nodes == 1)) || refuse "STRATEGY=single is one process, not $((gpus * nodes)); use ddp or fsdp" ;;
    ddp | fsdp | auto) ;;
    *) refuse "STRATEGY=$strategy is not known; use single, ddp, fsdp or auto" ;;
esac
[[ $nodes -eq 1 || -n "${MASTER_ADDR:-}" ]] || refuse "NNODES=$nodes but MASTER_ADDR is not set; set it to the address of the machine with NODE_RANK=0"
[[ -f "$script" ]] || refuse "SCRIPT=$script does not exist; give the path of a Python file"

if ((nodes == 1)); then
    meeting=(--standalone)
else
    meeting=(--nnodes "$nodes" --node-rank "$node" --master-addr "$MASTER_ADDR" --master-port "$port")
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m torch.distributed.run "${meeting[@]}" --nproc-per-node "$gpus" "$script" --strategy "$strategy" --batch-size "$batch" "$@"
