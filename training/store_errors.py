"""Errors of an object store that a job reads from, as errors of the job: what a restart may mend, and what it cannot."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from paceline.objects.errors import ObjectAccessError, ObjectLostError, ObjectStoreError
from paceline.training.errors import InvalidInputError


@contextlib.contextmanager
def explaining_store_errors(what: str, way_out: str) -> Iterator[None]:
    """Name what was read, as `data.path=s3://...`, and the way out.

    Raises InvalidInputError for what is refused or damaged, and ObjectStoreError for a store that cannot be reached now: that is worth a restart.
    """
    try:
        yield
    except (ObjectAccessError, ObjectLostError) as error:
        raise InvalidInputError(f"{what} cannot be read: {error}; {way_out}") from error
    except ObjectStoreError as error:
        raise ObjectStoreError(f"{what} cannot be read now: {error}; {way_out}") from error
