"""The batch script of an agent that runs as a Slurm job. Pure; the join token is not in it, but in the job's environment."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.cluster.provisioners.passed_names import pass_env_words
from paceline.cluster.provisioners.provisioner import WantedNode
from paceline.cluster.provisioners.slurm_settings import SlurmSettings

#: What is left of KillWait for the end itself.
END_SECONDS = 5
#: The agent's exit code after a notice, where its machine comes back (`cluster.agent.main`).
LEFT_TO_RETURN = 3
#: The only variables of the coordinator that reach the job.
EXPORTED = ("PACELINE_JOIN_TOKEN", "PATH", "HOME", "USER", "LANG")

SCRIPT = """\
#!/bin/bash
# An agent of Paceline: node {name}. It leaves when it is drained; Slurm's signals drain it.
{setup}
job=$SLURM_JOB_ID
data={directory}/{name}
mkdir -p -m 700 "$data" || exit 1
export PACELINE_LOG_FILE=$data/agent.log
exec >>"$PACELINE_LOG_FILE" 2>&1
options=()
end=$(TZ=UTC SLURM_TIME_FORMAT=standard squeue -h -j "$job" -o %e 2>/dev/null)
end=$(date -u -d "$end" +%s 2>/dev/null) && left=$((end - $(date +%s))) && [ "$left" -gt 0 ] && options+=(--ends-in "$left")
if [ -z "${{CUDA_VISIBLE_DEVICES:-}}" ] || [ "$CUDA_VISIBLE_DEVICES" = NoDevFiles ]; then
  unset CUDA_VISIBLE_DEVICES
  options+=(--gpus none{cpu_slots})
fi
conf=${{SLURM_CONF:-}}
unset "${{!SLURM_@}}"
agent= told=
trap 'told=1; [ -z "$agent" ] || kill -USR1 "$agent" 2>/dev/null' USR1 TERM
{agent} "${{options[@]}}" &
agent=$!
[ -z "$told" ] || kill -USR1 "$agent" 2>/dev/null
unset PACELINE_JOIN_TOKEN
while wait "$agent"; code=$?; kill -0 "$agent" 2>/dev/null; do :; done
# Its node is gone: whoever comes back joins anew, and no other node uses what this one has built and fetched.
[ "$code" -eq {returns} ] || rm -rf "$data/credential.json" "$data/environments" "$data/bundles"
[ -z "$conf" ] || export SLURM_CONF=$conf
{requeue}exit "$code"
"""


def batch_script(settings: SlurmSettings, request: WantedNode) -> str:
    """The script that Slurm runs on the compute node."""
    slots = "" if request.slots is not None else ' --slots "${SLURM_CPUS_ON_NODE:-1}"'
    requeue = f'[ "$code" -ne {LEFT_TO_RETURN} ] || scontrol requeue "$job"\n' if settings.requeue else ""
    return SCRIPT.format(
        name=request.name,
        setup="\n".join(settings.setup),
        directory=_path(settings.directory),
        cpu_slots=slots,
        agent=" ".join(_agent(settings, request)),
        returns=LEFT_TO_RETURN,
        requeue=requeue,
    )


def _agent(settings: SlurmSettings, request: WantedNode) -> list[str]:
    command = settings.paceline or str(Path(sys.executable).parent / "paceline")
    words = [_path(command), "worker", *map(shlex.quote, request.server_words), "--name", shlex.quote(request.name), "--data", '"$data"']
    words += ["--drain-seconds", str(settings.drain_seconds), "--drain-on-term", str(settings.kill_wait - END_SECONDS)]
    words += ["--checkpoints", _path(settings.checkpoints)] if settings.checkpoints else []
    words += map(shlex.quote, [*pass_env_words(settings.pass_env), *settings.agent_words])
    words += ["--slots", str(request.slots)] if request.slots is not None else []
    words += ["--returns"] if settings.requeue else []
    for key, value in sorted(request.labels.items()):
        words += ["--label", shlex.quote(f"{key}={value}")]
    return words


def _path(text: str) -> str:
    """A path as a word of bash; `~/` is the home folder on the compute node."""
    return f'"$HOME"/{shlex.quote(text[2:])}' if text.startswith("~/") else shlex.quote(text)


def sbatch_options(settings: SlurmSettings, request: WantedNode, comment: str) -> Sequence[str]:
    """The options of sbatch. Everybody who may list jobs can read them."""
    given = {
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "gres": settings.gres,
        "time": settings.time,
        "cpus-per-task": settings.cpus,
        "mem": settings.memory,
    }
    options = [
        "--parsable",
        f"--job-name={request.name}",
        f"--comment={comment}",
        "--nodes=1",
        "--ntasks=1",
        f"--export={','.join(EXPORTED)}",
    ]
    options += [f"--{name}={value}" for name, value in given.items() if value is not None]
    options += ["--exclusive"] if settings.exclusive else []
    options += ["--requeue" if settings.requeue else "--no-requeue", f"--signal=B:USR1@{settings.drain_seconds}", "--open-mode=append"]
    return [*options, *settings.options]
