"""`Image`: pictures for `paceline.log`, from arrays, tensors, PIL images, figures and files."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any, Literal

from paceline.media import array_of, shortened
from paceline.monitoring.image_files import Pixels, described, png
from paceline.monitoring.media import MAX_CAPTION_CHARACTERS, MAX_PIXELS, ImageFormat, MediaDocument, MediaKind, StoredImage, pack

Layout = Literal["HWC", "CHW"]
CHANNELS = (1, 3, 4)
#: How far a float may lie outside 0 to 1: interpolation and normalizing leave so much.
TOLERANCE = 1e-3
#: Larger files are not even read.
MAX_FILE_BYTES = 32 << 20


class Image:
    """A picture with a caption.

    `data`: an array or tensor of shape (height, width), (height, width, channels) or (channels, height, width) with 1, 3 or 4 channels, of whole
    numbers from 0 to 255, floats from 0 to 1, or truth values; a PIL image; a figure of matplotlib; the path of a PNG or JPEG file. Where the
    shape fits both layouts, a tensor is (channels, height, width) and an array (height, width, channels), unless `layout` says otherwise.
    Raises TypeError or ValueError for anything else, OSError for a file that cannot be read.
    """

    def __init__(self, data: Any, caption: str | None = None, *, layout: Layout | None = None, mode: str | None = None) -> None:
        """Convert the picture. `mode` is accepted for wandb's sake, and only for PIL images: the mode to convert to."""
        caption = shortened("" if caption is None else str(caption))
        self.caption = caption if len(caption) <= MAX_CAPTION_CHARACTERS else f"{caption[: MAX_CAPTION_CHARACTERS - 1]}…"
        if layout not in (None, "HWC", "CHW"):
            raise ValueError(f"Image: layout={layout!r} is neither 'HWC' nor 'CHW'")
        self.width = self.height = 0
        self._file: tuple[ImageFormat, bytes] | None = None
        self._pixels: Pixels | None = None
        if isinstance(data, Image):
            self._file, self._pixels, self.width, self.height = data._file, data._pixels, data.width, data.height
            self.caption = self.caption or data.caption
        elif isinstance(data, str | os.PathLike):
            self._take_file(read(data), str(data))
        elif hasattr(data, "savefig"):
            figure = io.BytesIO()
            data.savefig(figure, format="png")
            self._take_file(figure.getvalue(), "the figure")
        elif hasattr(data, "getbands") and hasattr(data, "tobytes"):
            self._take_pil(data, mode)
        else:
            self._take_array(data, layout)

    def _take_file(self, content: bytes, name: str) -> None:
        found = described(content)
        if found is None:
            raise ValueError(f"Image: {name} is no PNG or JPEG file: convert it, or open it with PIL and pass that image")
        kind, self.width, self.height = found
        self._file = (kind, content)

    def _take_pil(self, picture: Any, mode: str | None) -> None:
        wanted = mode if mode in ("L", "RGB", "RGBA") else picture.mode if picture.mode in ("L", "RGB", "RGBA") else None
        if wanted is None:
            wanted = "RGBA" if "A" in picture.getbands() or "transparency" in getattr(picture, "info", {}) else "RGB"
        self.width, self.height = picture.size
        if self.refusal is None:
            picture = picture if picture.mode == wanted else picture.convert(wanted)
            self._pixels = Pixels(self.width, self.height, len(wanted), picture.tobytes())

    def _take_array(self, data: Any, layout: Layout | None) -> None:
        is_tensor = hasattr(data, "detach")
        array = array_of(data, "Image")
        array = _rows_first(array, layout or ("CHW" if is_tensor else "HWC"), forced=layout is not None)
        self.height, self.width = array.shape[:2]
        if self.refusal is None:
            self._pixels = Pixels(self.width, self.height, array.shape[2], bytes_of(array).tobytes())

    @property
    def refusal(self) -> str | None:
        """Why the picture is too large to be kept; None: it is not."""
        if self.width * self.height <= MAX_PIXELS:
            return None
        return f"{self.width} x {self.height} pixels are over the limit of {MAX_PIXELS:,}: scale the image down"

    @property
    def size(self) -> int:
        """Bytes of memory that it takes."""
        return len(self._file[1]) if self._file else len(self._pixels.data) if self._pixels else 0

    def encoded(self) -> tuple[StoredImage, bytes]:
        """Return what is stored of it, and its file."""
        if self._file is not None:
            kind, content = self._file
        else:
            assert self._pixels is not None, "an image that is too large has no pixels"
            kind, content = "png", png(self._pixels)
        return StoredImage(width=self.width, height=self.height, caption=self.caption, format=kind, bytes=len(content)), content


class ImageList:
    """The images that one call logs under one key."""

    kind: MediaKind = "images"

    def __init__(self, images: Sequence[Image]) -> None:
        self._images = images

    def first(self, most: int) -> ImageList:
        """Return the first `most` of them."""
        return ImageList(self._images[:most])

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._images)

    @property
    def size(self) -> int:
        """Bytes of memory that they take."""
        return sum(image.size for image in self._images)

    @property
    def refusal(self) -> str | None:
        """Why one of them is too large to be kept."""
        return next((image.refusal for image in self._images if image.refusal), None)

    def content(self) -> bytes:
        """Compress the images, and return the content of their artifact."""
        stored = [image.encoded() for image in self._images]
        return pack(MediaDocument(images=tuple(each for each, _ in stored)), [file for _, file in stored])

    def words(self) -> str:
        """Return them in words."""
        first = self._images[0]
        size = f"{first.width} x {first.height}"
        return f"(image, {size})" if len(self._images) == 1 else f"({len(self._images)} images, {size})"


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the content of an image file. Raises OSError, and ValueError for one that is far too large."""
    with open(path, "rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"Image: {os.fspath(path)} has over {MAX_FILE_BYTES:,} bytes: scale it down")
    return content


def _rows_first(array: Any, layout: Layout, *, forced: bool) -> Any:
    """Return an array of shape (height, width, channels)."""
    shape = array.shape
    if array.ndim == 2 and array.size:
        return array[:, :, None]
    if array.ndim != 3 or not array.size:
        extra = "; log a batch as a list of images" if array.ndim == 4 else ""
        raise ValueError(f"Image: shape {shape} is not (height, width), (height, width, channels) or (channels, height, width){extra}")
    first, last = shape[0] in CHANNELS, shape[2] in CHANNELS
    wanted = layout if forced or first == last else "CHW" if first else "HWC"
    if not (first if wanted == "CHW" else last):
        raise ValueError(f"Image: shape {shape} has no axis of 1, 3 or 4 channels{f' where layout={layout!r} has it' if forced else ''}")
    return array.transpose(1, 2, 0) if wanted == "CHW" else array


def bytes_of(array: Any) -> Any:
    """Return pixels as bytes from 0 to 255, in the order of rows. Raises ValueError for values outside the range of their type."""
    import numpy

    if array.dtype == numpy.bool_:
        return array.astype(numpy.uint8) * 255
    if array.dtype == numpy.uint8:
        return numpy.ascontiguousarray(array)
    least, most = array.min(), array.max()
    if array.dtype.kind == "f":
        if not (numpy.isfinite(least) and numpy.isfinite(most)):
            raise ValueError("Image: some pixels are NaN or infinite: replace them, for example by numpy.nan_to_num")
        if least < -TOLERANCE or most > 1 + TOLERANCE:
            raise ValueError(
                f"Image: floats from {least:.6g} to {most:.6g} are not between 0 and 1: scale them, or pass uint8 from 0 to 255"
            )
        return (numpy.clip(array, 0.0, 1.0) * 255.0 + 0.5).astype(numpy.uint8, order="C")
    if least < 0 or most > 255:
        raise ValueError(f"Image: whole numbers from {least} to {most} are not between 0 and 255: scale them")
    return array.astype(numpy.uint8, order="C")
