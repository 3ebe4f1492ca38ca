"""The media types that files of jobs are served with: none that a browser would run or render as a page."""

from __future__ import annotations

UNKNOWN = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
#: By extension. HTML, SVG, XML and scripts are text or unknown, whatever they are called.
MEDIA_TYPES = {
    "json": "application/json",
    "jsonl": TEXT,
    "csv": "text/csv; charset=utf-8",
    "tsv": TEXT,
    "txt": TEXT,
    "log": TEXT,
    "md": TEXT,
    "yaml": TEXT,
    "yml": TEXT,
    "toml": TEXT,
    "ini": TEXT,
    "cfg": TEXT,
    "py": TEXT,
    "sh": TEXT,
    "diff": TEXT,
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "zip": "application/zip",
    "gz": "application/gzip",
}


def media_type_of(path: str) -> str:
    """The media type of a file, from its extension alone: what it contains is not looked at."""
    return MEDIA_TYPES.get(path.rpartition("/")[2].rpartition(".")[2].lower(), UNKNOWN)
