#!/usr/bin/env bash
# Train with DDP on this machine: scripts/run_ddp_single_node.sh [RANKS [BATCH [OPTIONS of scripts/production_train.py...]]]
# RANKS is by default one for each GPU, BATCH (samples of each rank in a batch) 32. What is trained is --config job.yaml, or --model and --data.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
unset NNODES NODE_RANK MASTER_ADDR # this machine alone, whatever the shell has
ranks=${1:-$("${PYTHON:-$root/.venv/bin/python}" -c "import torch; print(torch.cuda.device_count() or 1)" || echo 1)}
exec "$root/scripts/launch_training.sh" "$ranks" ddp "${2:-32}" "$root/scripts/production_train.py" "${@:3}"
