"""The built dashboard at `/`: files as they are, every other path its index page, because routes live in the browser."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response

from api.errors import ProblemError
from api.problems import wrong_method

router = APIRouter(include_in_schema=False)
NOT_BUILT = "The dashboard is not built yet. Run `make setup`, or `cd dashboard && npm install && npm run build`.\nThe API is at /api/v1.\n"
FOREVER = "public, max-age=31536000, immutable"


@router.get("/{path:path}")
async def dashboard(path: str, request: Request) -> Response:
    if path == "api" or path.startswith("api/"):
        raise wrong_method(request)
    root: Path = request.app.state.settings.dashboard.resolve()
    index = root / "index.html"
    if not index.is_file():
        return PlainTextResponse(NOT_BUILT, status_code=503)
    file = (root / path).resolve()
    if path and file.is_relative_to(root) and file.is_file():
        return FileResponse(file, headers={"Cache-Control": FOREVER} if path.startswith("assets/") else {"Cache-Control": "no-cache"})
    if Path(path).suffix:
        raise ProblemError("not_found", f"/{path}: the dashboard has no such file")
    return FileResponse(index, headers={"Cache-Control": "no-cache"})
