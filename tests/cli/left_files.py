"""A job with files that its ranks have left, as the coordinator lists and sends them."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.cli.fake_coordinator import API, Answer, FakeCoordinator, Request, job

ID = job()["id"]
FILES = f"/training/jobs/{ID}/files"
CONTENTS = {"rank0/a.txt": b"a", "rank0/eval/ü b.csv": b"x,y\n", "rank1/a.txt": b"of rank 1"}


def item(path: str) -> dict[str, Any]:
    content = CONTENTS[path]
    return {
        "path": path,
        "name": path.rpartition("/")[2],
        "rank": int(path[4]),
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "changed_at": "2026-11-20T12:00:00Z",
    }


def left(coordinator: FakeCoordinator, **changes: Any) -> None:
    """A coordinator that has CONTENTS, one file in a page."""

    def folder(request: Request) -> Answer:
        prefix, recursive = request.query.get("prefix", ""), request.query.get("recursive") == "true"
        below = [path for path in CONTENTS if not prefix or path.startswith(f"{prefix}/")]
        items = [path for path in below if recursive or path.rpartition("/")[0] == prefix]
        start = int(request.query.get("cursor", 0))
        folders = [] if prefix else [{"name": f"rank{rank}", "path": f"rank{rank}", "files": 2 - rank, "bytes": 9} for rank in (0, 1)]
        page = {
            "prefix": prefix,
            "files": len(below),
            "bytes": 14,
            "folders": [each | {"changed_at": "2026-11-20T12:00:00Z"} for each in folders],
            "items": [item(path) for path in items[start : start + 1]],
            "next_cursor": str(start + 1) if start + 1 < len(items) else None,
            "arriving": 0,
            "not_kept": [],
        }
        return Answer(200, page | changes)

    coordinator.handlers["GET", API + FILES] = folder
    coordinator.handlers["GET", f"{API}{FILES}/content"] = lambda request: Answer(200, CONTENTS[request.query["path"]])
