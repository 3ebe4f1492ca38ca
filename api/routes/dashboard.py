"""The built dashboard at `/`: files as they are, every other path its index page, because routes live in the browser."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response

from paceline.api.errors import ProblemError
from paceline.api.problems import wrong_method

router = APIRouter(include_in_schema=False)
NOT_BUILT = "The dashboard is not built yet. Run `make setup`, or `cd dashboard && npm install && npm run build`.\nThe API is at /api/v1.\n"
#: Of the paths that the dashboard has for its pages.
LONGEST_PAGE = 1024
FOREVER = "public, max-age=31536000, immutable"


@router.get("/{path:path}")
async def dashboard(path: str, request: Request) -> Response:
    if path == "api":
        raise ProblemError("not_found", "GET /api: there is no such endpoint; the API is at /api/v1")
    if path.startswith("api/"):
        raise wrong_method(request)
    root: Path = request.app.state.settings.dashboard.resolve()
    index = root / "index.html"
    if not index.is_file():
        return PlainTextResponse(NOT_BUILT, status_code=503)
    file = _file(root, path)
    if file is not None:
        return FileResponse(file, headers={"Cache-Control": FOREVER} if path.startswith("assets/") else {"Cache-Control": "no-cache"})
    if Path(path).suffix or len(path) > LONGEST_PAGE:
        raise ProblemError("not_found", f"/{path[:LONGEST_PAGE]}: the dashboard has no such file")
    return FileResponse(index, headers={"Cache-Control": "no-cache"})


def _file(root: Path, path: str) -> Path | None:
    """A file of the build; None: it has no such file, or no file can have such a name."""
    try:
        file = (root / path).resolve()
        return file if path and file.is_relative_to(root) and file.is_file() else None
    except (OSError, ValueError):  # a name that is too long, or has a NUL
        return None
