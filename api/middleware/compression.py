"""Compresses answers with gzip for clients that accept it."""

from __future__ import annotations

from functools import partial

from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware

#: Smaller answers fit one packet as they are. New keys, tokens and login links stand in such answers, so that none is ever compressed
#: beside what somebody else has written.
MINIMUM_BYTES = 1400
#: Level 4 takes a third of the time of level 9; JSON of curves grows by a tenth.
LEVEL = 4
#: Artifacts and bundles: archives, checkpoints and profiles, whose compression costs time and saves nothing.
AS_THEY_ARE = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream", "application/x-tar", "application/zstd")

#: Each part of a stream is sent as soon as it is there, and large parts are compressed in a thread.
Compression = partial(GZipMiddleware, minimum_size=MINIMUM_BYTES, compresslevel=LEVEL, exclude_content_types=AS_THEY_ARE)
