"""The documentation at `/docs`: the site that the dashboard's build has taken along."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from paceline.api.errors import ProblemError
from paceline.api.middleware.gate import page_rules
from paceline.api.routes.dashboard import file_below, sent

router = APIRouter(include_in_schema=False)
NOT_BUILT = "The documentation is not built yet. Run `make setup`.\nIts pages are in the folder docs/ of the repository.\n"
_INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


@router.get("/docs")
@router.get("/docs/")
async def documentation() -> Response:
    return RedirectResponse("/docs/index.html")


@router.get("/docs/{path:path}")
async def page(path: str, request: Request) -> Response:
    root: Path = request.app.state.settings.dashboard.resolve() / "docs"
    if not (root / "index.html").is_file():
        return PlainTextResponse(NOT_BUILT, status_code=503)
    file = file_below(root, path)
    if file is None:
        raise ProblemError("not_found", f"/docs/{path[:200]}: the documentation has no such page; it begins at /docs")
    response = sent(file, "no-cache", request.headers.get("accept-encoding", ""))
    if file.suffix == ".html":
        response.headers["Content-Security-Policy"] = page_rules(*inline_scripts(file, file.stat().st_mtime_ns))
    return response


@functools.lru_cache(maxsize=256)
def inline_scripts(file: Path, changed: int) -> tuple[str, ...]:
    """Return the hashes of a page's inline scripts, as a content security policy has them: these and no others may run there.

    `changed` is when the file was written: a newer one is read anew.
    """
    scripts = _INLINE_SCRIPT.findall(file.read_text())
    return tuple(dict.fromkeys(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts))
