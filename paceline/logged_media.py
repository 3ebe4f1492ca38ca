"""Images, histograms and tables among the values of `paceline.log`, on their way to the job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from paceline.images import Image, ImageList
from paceline.media import Histogram, Media, Table
from paceline.monitoring.checks import check_name
from paceline.monitoring.media import MAX_IMAGES, MediaLabel
from paceline.monitoring.media_recorder import LoggedMedia
from paceline.training.own_loop.recorders import job_folder, job_media_recorder, job_recorder

#: Keys of one rank.
MAX_KEYS = 200


def media_in(values: Mapping[str, Any]) -> dict[str, Media]:
    """Return what is an image, a list of images, a histogram or a table, by key. Raises TypeError or ValueError for a key that cannot be one."""
    found: dict[str, Media] = {}
    for name, value in values.items():
        media = _media_of(value)
        if media is not None:
            check_name(name)
            found[name] = media
    return found


def _media_of(value: Any) -> Media | None:
    match value:
        case float() | int() | str():
            return None
        case Histogram():
            return value
        case Table():
            return value.copy()  # rows may be added while it waits
        case Image():
            return ImageList([value])
        case [Image(), *_] if all(isinstance(each, Image) for each in value):
            return ImageList(value)
    return None


class KeptMedia:
    """Hands objects to the thread that writes them. What is over a limit is dropped, and told once."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def record(self, step: int, media: Mapping[str, Media]) -> None:
        """Queue objects that were logged at `step`. Never blocks, whatever their size."""
        recorder, folder, metrics = job_media_recorder(), job_folder(), job_recorder()
        if recorder is None or folder is None or metrics is None:
            return
        for key, each in media.items():
            self._keys.add(key)
            if len(self._keys) > MAX_KEYS:
                self._keys.discard(key)
                reason = f"over {MAX_KEYS} distinct keys of images, histograms and tables in one rank: put what varies into the caption"
                metrics.drop("keys of images, histograms and tables", 1, reason, key)
                continue
            if isinstance(each, ImageList) and each.count > MAX_IMAGES:
                metrics.drop("images of lists", each.count - MAX_IMAGES, f"the first {MAX_IMAGES} images of a key and step are kept", key)
                each = each.first(MAX_IMAGES)
            if isinstance(each, Table) and each.total_rows > len(each.rows):
                reason = f"the first {len(each.rows):,} rows of a table are kept"
                metrics.drop("rows of tables", each.total_rows - len(each.rows), reason, f"{key} at step {step}")
            if each.refusal is not None:
                metrics.drop(f"{each.kind} that are too large", 1, each.refusal, f"{key} at step {step}")
                continue
            label = MediaLabel(key=key, kind=each.kind, count=each.count)
            recorder.record(LoggedMedia(folder.artifacts, step, time.time(), label, each.size, each.content))
