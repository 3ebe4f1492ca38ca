"""The packages of a job at submit: its requirements files are read from its code, so that the stored spec says all."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from typing import IO

from pydantic_core import PydanticCustomError

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.api.schemas.common import FieldError
from paceline.api.services.bundles import bundles
from paceline.bundles.archive import read_files
from paceline.bundles.errors import DamagedBundleError
from paceline.training.schema.packages import MOST_FILE_BYTES, expand
from paceline.training.spec.job import JobSpec

REQUIREMENTS = "/environment/requirements"
WAY_OUT = "submit it with `paceline submit`, which reads the file, or send its folder with --workdir"
MEMORY_BYTES = 8 << 20


async def with_files_read(services: Services, spec: JobSpec) -> JobSpec:
    """The spec with the lines of its requirements files, which are in its code. Raises ProblemError `invalid_spec`."""
    if not spec.environment.unread_requirements or spec.environment.code is None:
        return spec
    digest = spec.environment.code.bundle
    async with services.control.read() as session:
        await bundles.find_ready(session, digest)
    with tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES) as packed:
        async for data in bundles.contents(services, digest):
            packed.write(data)
        lines = await asyncio.to_thread(_expanded, spec.environment.requirements or (), packed)
    environment = spec.environment.model_copy(update={"requirements": lines})
    return spec.model_copy(update={"environment": environment})


def _expanded(lines: tuple[str, ...], packed: IO[bytes]) -> tuple[str, ...]:
    try:
        return expand(lines, _text(read_files(packed, MOST_FILE_BYTES)))
    except PydanticCustomError as error:
        raise _refusal(error.message(), "correct the file, and send the folder again") from None
    except KeyError as error:
        raise _refusal(
            f"there is no {error.args[0]} in the job's code", "name a file of the folder that was sent; .gitignore may leave it out"
        ) from None
    except (DamagedBundleError, UnicodeDecodeError) as error:
        raise _refusal(f"a requirements file cannot be read: {error}", "write it as UTF-8 text") from None


def _text(read: Callable[[str], bytes]) -> Callable[[str], str]:
    return lambda path: read(path).decode()


def require_read(spec: JobSpec) -> None:
    """Raise ProblemError `invalid_spec` where a requirements file was not read: nodes do not have it."""
    if unread := spec.environment.unread_requirements:
        raise _refusal(f"the coordinator does not have {unread[0]}", WAY_OUT)


def _refusal(why: str, way_out: str) -> ProblemError:
    return ProblemError(
        "invalid_spec",
        f"{REQUIREMENTS}: {why}; {way_out}",
        errors=[FieldError(pointer=REQUIREMENTS, code="inconsistent_spec", message=why, hint=way_out)],
    )
