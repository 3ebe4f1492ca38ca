"""The `environment` section: variables, secrets, folder, packages and container of a job's ranks. Pure pydantic."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field, model_validator

from paceline.training.schema.code import Code
from paceline.training.schema.packages import MOST_REQUIREMENTS, RequirementLines, files_named
from paceline.training.schema.parts import Part, Path, absent, at_most, inconsistent
from paceline.training.schema.script import Argument
from paceline.training.schema.spelling import SpellingRule

VariableName = Annotated[str, SpellingRule(r"^[A-Za-z_][A-Za-z0-9_]*$", "letters, digits and '_', first no digit", "NCCL_DEBUG")]
SecretName = Annotated[str, SpellingRule(r"^[A-Za-z_][A-Za-z0-9_]{0,99}$", "1 to 100 letters, digits and '_', first no digit", "HF_TOKEN")]
MOST_SECRETS = 50
_RESERVED = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})


def is_set_by_paceline(name: str) -> bool:
    """Whether each rank gets a variable of this name from Paceline, so that a secret cannot have it."""
    return name in _RESERVED or name.startswith("PACELINE_")


def _is_empty(names: object) -> bool:
    """Whether a list can be left out of a document: nodes of the version before do not know it."""
    return not names


Image = Annotated[
    str,
    SpellingRule(
        r"^[A-Za-z0-9/][A-Za-z0-9._:/@+-]{0,499}$",
        "the name of a container image, without spaces",
        "docker.io/pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime",
    ),
]
Mount = Annotated[
    str, SpellingRule(r"^/[^:]*(:/[^:]*)?(:ro)?$", "a folder of the nodes, as /data, /data:/inside or /data:/inside:ro", "/data:/data:ro")
]
MOST_MOUNTS = 50


class Environment(Part):
    variables: Annotated[dict[VariableName, Argument], at_most(1000)] = Field(default_factory=dict, max_length=1000)
    secrets: tuple[SecretName, ...] = Field(
        (),
        max_length=MOST_SECRETS,
        exclude_if=_is_empty,
        description="Names of the project's secrets. The ranks get each as a variable of that name.",
    )
    working_directory: Path | None = Field(
        None, description="Absolute folder on the nodes. The ranks start in it; modules and entrypoints are found in it."
    )
    code: Code | None = Field(
        None, description="Folder that is sent along. The ranks start in a copy of it, in the job's own folder on each node."
    )
    requirements: RequirementLines | None = Field(
        None,
        max_length=MOST_REQUIREMENTS,
        exclude_if=absent,
        description="Packages that each node installs for this job, on top of its torch: lines of a requirements file, or the name of the "
        "file. It is read once, at submit.",
    )
    own_torch: bool = Field(
        False,
        exclude_if=lambda value: not value,
        description="Take torch from requirements in place of the node's. For scripts only.",
    )
    python: Path | None = Field(
        None,
        exclude_if=absent,
        description="Absolute path of an interpreter on the nodes, of a virtual or conda environment. Its torch has to be the node's, but "
        "for scripts.",
    )
    image: Image | None = Field(
        None, exclude_if=absent, description="Container image that the ranks run in, by podman, docker or apptainer on the node."
    )
    mounts: tuple[Mount, ...] = Field(
        (),
        max_length=MOST_MOUNTS,
        exclude_if=lambda value: not value,
        description="Folders of the nodes that the container sees, as /data or /data:/inside:ro. The job's own folders are always there.",
    )

    @model_validator(mode="after")
    def check_environment(self) -> Environment:
        if self.working_directory is not None and not PurePosixPath(self.working_directory).is_absolute():
            raise inconsistent("environment.working_directory={path} is not an absolute path", path=self.working_directory)
        if self.working_directory is not None and self.code is not None:
            raise inconsistent(
                "environment.working_directory={path} and environment.code are both given; leave out the one that the ranks do not start in",
                path=self.working_directory,
            )
        self._check_packages()
        reserved = _RESERVED & set(self.variables)
        if reserved:
            raise inconsistent(
                "environment.variables sets {names}, which Paceline itself sets for each rank", names=", ".join(sorted(reserved))
            )
        return self

    def _check_packages(self) -> None:
        given = [name for name in ("requirements", "python", "image") if getattr(self, name) is not None]
        if len(given) > 1:
            raise inconsistent(
                "environment.{first} and environment.{second} are both given: each decides which packages the ranks have; leave one out",
                first=given[0],
                second=given[1],
            )
        if self.own_torch and self.requirements is None:
            raise inconsistent("environment.own_torch=true takes torch from environment.requirements: give them, with torch among them")
        if self.mounts and self.image is None:
            raise inconsistent("environment.mounts are for environment.image: without an image the ranks see every folder of their node")
        if self.python is not None and not PurePosixPath(self.python).is_absolute():
            raise inconsistent("environment.python={path} is not an absolute path, as /opt/venv/bin/python", path=self.python)

    @property
    def unread_requirements(self) -> list[str]:
        """The requirements files that are named and have not been read yet."""
        return files_named(self.requirements or ())

    @model_validator(mode="after")
    def check_secrets(self) -> Environment:
        ours = sorted(filter(is_set_by_paceline, self.secrets))
        if ours:
            raise inconsistent("environment.secrets has {names}, which Paceline itself sets for each rank", names=", ".join(ours))
        both = sorted(set(self.secrets) & set(self.variables))
        if both:
            raise inconsistent(
                "environment.secrets and environment.variables both have {names}; leave out the one that the ranks are not to get",
                names=", ".join(both),
            )
        twice = next((name for name in self.secrets if self.secrets.count(name) > 1), None)
        if twice is not None:
            raise inconsistent("environment.secrets has {name} twice; name each once", name=twice)
        return self
