"""PNG files as other programs read them, and the sizes of files that other programs wrote."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from paceline.monitoring.image_files import Pixels, described, png


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (37, 53), (3, 300)])
def test_pixels_come_back_as_they_were(channels: int, height: int, width: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)
    file = png(Pixels(width, height, channels, pixels.tobytes()))
    assert described(file) == ("png", width, height)
    with Image.open(io.BytesIO(file)) as found:
        assert (np.asarray(found).reshape(pixels.shape) == pixels).all()


def test_the_size_of_a_jpeg_is_found() -> None:
    for progressive in (False, True):
        file = io.BytesIO()
        Image.new("RGB", (31, 17)).save(file, "JPEG", progressive=progressive, comment=b"x" * 3000)
        assert described(file.getvalue()) == ("jpeg", 31, 17)


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"<svg/>", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0\x00\x10", b"\xff\xd8\xff\xff\xff"])
def test_other_files_are_none(content: bytes) -> None:
    assert described(content) is None
