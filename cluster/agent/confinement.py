"""The part of its node that a rank gets, and the part that it does not: variables, and the rights of the files it makes.

A rank runs its user's code. It starts with the variables below, those that the node's owner names (`--pass-env`), and the job's own;
keys and tokens that happen to be in the agent's environment are not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster.agent.processes import AGENT_DATA_VARIABLE
from paceline.cluster.passed_variables import NEVER
from paceline.training.schema.secret_names import names_a_secret

_NAMES = """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TERM TMPDIR TMP TEMP HOSTNAME XDG_CACHE_HOME XDG_DATA_HOME XDG_RUNTIME_DIR
    VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV CC CXX LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH CPATH
    http_proxy https_proxy ftp_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY FTP_PROXY NO_PROXY ALL_PROXY
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    PYTHONPATH PYTHONHOME PYTHONHASHSEED PYTHONUNBUFFERED PYTHONWARNINGS PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX PYTHONNOUSERSITE
    PYTHONUTF8 PYTHONIOENCODING PYTHONFAULTHANDLER PYTHONOPTIMIZE PYTHONMALLOC PYTHONUSERBASE
    PACELINE_CACHE PACELINE_DATA_CACHE_GB PACELINE_STACK
    """
_PREFIXES = """
    LC_ CUDA_ CUDNN_ CUBLAS_ NVIDIA_ NVTE_ NCCL_ GLOO_ UCX_ FI_ IB_ OMP_ GOMP_ KMP_ MKL_ OPENBLAS_ BLIS_ NUMEXPR_ VECLIB_ MALLOC_ GLIBC_
    TORCH PYTORCH TRITON_ HF_ HUGGINGFACE_ TRANSFORMERS_ TOKENIZERS_ SLURM_
    AWS_ENDPOINT_URL AWS_REGION AWS_DEFAULT_REGION AZURE_STORAGE_ACCOUNT_NAME
    """
#: Always passed on, where the agent has them.
NAMES = frozenset(_NAMES.split()) | {AGENT_DATA_VARIABLE}
#: Passed on by how they begin, unless the rest names a secret: settings of libraries.
PREFIXES = tuple(_PREFIXES.split())


@dataclass(frozen=True)
class Confinement:
    """How the ranks of a node are kept apart from their node."""

    pass_environment: tuple[str, ...] = ()  # variables besides NAMES and PREFIXES; one that ends with '*' is a beginning of names
    run_as: str | None = None  # the user that ranks run as; None: the agent's own
    memory_limit: int | None = None  # bytes, of one rank and all it starts; None: no limit
    groups: Path | None = None  # below which each rank has a control group for that
    shielded: bool = (
        False  # SIGTERM to every process of the node is the agent's to handle: it ends neither spawner nor ranks of the trainer
    )
    umask: int = 0o022  # of the user who started the agent: what ranks create follows it


def inherited_environment(environment: Mapping[str, str], also: tuple[str, ...] = ()) -> dict[str, str]:
    """The part of an agent's environment that its ranks start with; `also` are further names, or beginnings of names such as `WANDB_*`."""
    names, beginnings = frozenset(also), tuple(each.removesuffix("*") for each in also if each.endswith("*"))
    return {
        name: value
        for name, value in environment.items()
        if name not in NEVER and (name in names or name.startswith(beginnings) or _is_harmless(name))
    }


def _is_harmless(name: str) -> bool:
    return name in NAMES or (name.startswith(PREFIXES) and not names_a_secret(name))
