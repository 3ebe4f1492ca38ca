#!/usr/bin/env bash
# What works on this machine's GPUs; see scripts/gpu_check/__main__.py. PYTHON chooses the interpreter: by default the project's, but
# python3 where only that one has a CUDA build of torch.
set -euo pipefail
cd "$(dirname "$0")/.."

has_cuda_build() {
    "$1" -c 'import sys, torch; sys.exit(torch.version.cuda is None)' 2>/dev/null
}

if [[ -z "${PYTHON:-}" ]]; then
    PYTHON=python3
    if [[ -x .venv/bin/python ]] && { has_cuda_build .venv/bin/python || ! has_cuda_build python3; }; then
        PYTHON=.venv/bin/python
    fi
fi
exec "$PYTHON" -m scripts.gpu_check "$@"
