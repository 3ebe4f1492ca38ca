"""The built dashboard at `/`: files as they are, every other path its index page, because routes live in the browser."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response

from paceline.api.errors import ProblemError
from paceline.api.problems import wrong_method

router = APIRouter(include_in_schema=False)
NOT_BUILT = "The dashboard is not built yet. Run `make setup`, or `cd dashboard && npm install && npm run build`.\nThe API is at /api/v1.\n"
#: The longest path of a page of the dashboard.
LONGEST_PAGE = 1024
#: Encodings of the copies that `dashboard/precompress.ts` writes, with the ends of their names, the smallest first.
COPIES = {"br": ".br", "gzip": ".gz"}
FOREVER = "public, max-age=31536000, immutable"


@router.get("/{path:path}")
async def dashboard(path: str, request: Request) -> Response:
    if path == "api":
        raise ProblemError("not_found", "GET /api: there is no such endpoint; the API is at /api/v1")
    if path.startswith("api/"):
        raise wrong_method(request)
    root: Path = request.app.state.settings.dashboard.resolve()
    index, accepted = root / "index.html", request.headers.get("accept-encoding", "")
    if not index.is_file():
        return PlainTextResponse(NOT_BUILT, status_code=503)
    file = file_below(root, path)
    if file is not None:
        return sent(file, FOREVER if path.startswith("assets/") else "no-cache", accepted)
    if Path(path).suffix or len(path) > LONGEST_PAGE:
        raise ProblemError("not_found", f"/{path[:LONGEST_PAGE]}: the dashboard has no such file")
    return sent(index, "no-cache", accepted)


def sent(file: Path, cache: str, accepted: str) -> FileResponse:
    """The file, or its smallest compressed copy that the browser takes, which the build has left beside it."""
    headers = {"Cache-Control": cache}
    names = {name.partition(";")[0].strip() for name in accepted.split(",") if not _refused(name)}
    for encoding, suffix in COPIES.items():
        copy = file.with_name(file.name + suffix)
        if encoding in names and copy.is_file():
            media_type = mimetypes.guess_type(file.name)[0]
            return FileResponse(copy, headers=headers | {"Content-Encoding": encoding, "Vary": "Accept-Encoding"}, media_type=media_type)
    return FileResponse(file, headers=headers)


def _refused(encoding: str) -> bool:
    """Whether a member of Accept-Encoding has the weight 0."""
    _, _, weight = encoding.replace(" ", "").partition(";q=")
    return weight != "" and weight.strip("0.") == ""


def file_below(root: Path, path: str) -> Path | None:
    """A file of the build; None: it has no such file, or no file can have such a name."""
    try:
        file = (root / path).resolve()
        return file if path and file.is_relative_to(root) and file.is_file() else None
    except (OSError, ValueError):  # a name that is too long, or has a NUL
        return None
