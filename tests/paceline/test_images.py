"""Images, as a script makes them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

from paceline.images import Image, ImageList
from paceline.monitoring.media import MAX_PIXELS, unpack


def pixels_of(image: Image) -> Any:
    _, file = image.encoded()
    with PIL.Image.open(io.BytesIO(file)) as found:
        return np.asarray(found)


COLOURS = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    "data",
    [
        COLOURS,
        COLOURS.transpose(2, 0, 1),
        COLOURS.astype(np.int64),
        COLOURS.astype(np.float64) / 255,
        torch.from_numpy(COLOURS),
        torch.from_numpy(COLOURS).permute(2, 0, 1),
        (torch.from_numpy(COLOURS) / 255.0).requires_grad_(),
        COLOURS.tolist(),
        PIL.Image.fromarray(COLOURS),
        Image(COLOURS),
        np.asfortranarray(COLOURS)[:, :, :],
    ],
)
def test_the_same_picture_in_many_forms(data: Any) -> None:
    image = Image(data, caption="a\ud800")
    assert (image.width, image.height, image.caption) == (9, 7, "a?")
    assert (pixels_of(image) == COLOURS).all()


def test_grey_and_transparent_pictures_keep_their_channels() -> None:
    assert pixels_of(Image(np.eye(4, dtype=bool))).tolist() == (np.eye(4, dtype=np.uint8) * 255).tolist()
    assert pixels_of(Image(torch.rand(1, 5, 6))).shape == (5, 6)
    assert pixels_of(Image(np.zeros((5, 6, 4), np.uint8))).shape == (5, 6, 4)
    palette = PIL.Image.new("P", (3, 2))
    assert pixels_of(Image(palette)).shape == (2, 3, 3)
    assert pixels_of(Image(PIL.Image.new("LA", (3, 2)))).shape == (2, 3, 4)


def test_where_a_shape_fits_both_layouts_tensors_have_their_channels_first() -> None:
    assert (Image(np.zeros((3, 8, 3), np.uint8)).height, Image(torch.zeros(3, 8, 3)).height) == (3, 8)
    assert Image(np.zeros((3, 8, 3), np.uint8), layout="CHW").height == 8


def test_files_are_kept_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "bild.jpg"
    PIL.Image.fromarray(COLOURS).save(path)
    stored, file = Image(path, caption=7).encoded()  # type: ignore[arg-type]
    assert (stored.format, stored.width, stored.height, stored.caption) == ("jpeg", 9, 7, "7")
    assert file == path.read_bytes()


def test_a_figure_is_drawn() -> None:
    class Figure:
        def savefig(self, target: Any, format: str) -> None:
            PIL.Image.fromarray(COLOURS).save(target, format)

    assert (pixels_of(Image(Figure())) == COLOURS).all()


def test_half_precision_just_outside_the_range_is_rounding() -> None:
    assert pixels_of(Image(torch.tensor([[1.0005, -0.0005]]))).tolist() == [[255, 0]]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (np.zeros((2, 3, 4, 5)), ValueError, r"shape \(2, 3, 4, 5\) is not .* log a batch as a list"),
        (np.zeros((5, 5, 2)), ValueError, "no axis of 1, 3 or 4 channels"),
        (np.zeros((0, 5)), ValueError, "shape"),
        (np.zeros(5), ValueError, "shape"),
        (np.full((2, 2), 255.0), ValueError, "floats from 255 to 255 are not between 0 and 1"),
        (np.array([[np.nan, 0.5]]), ValueError, "NaN or infinite"),
        (np.array([[300, 0]]), ValueError, "whole numbers from 0 to 300"),
        (np.array([[1j]]), TypeError, "not real numbers"),
        (object(), TypeError, "not real numbers"),
        (None, TypeError, "not real numbers"),
    ],
)
def test_a_wrong_picture_is_refused_in_the_line_of_its_caller(data: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Image(data)


def test_files_that_are_no_picture_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.svg").write_text("<svg/>")
    with pytest.raises(ValueError, match="no PNG or JPEG file"):
        Image(tmp_path / "x.svg")
    with pytest.raises(FileNotFoundError):
        Image(tmp_path / "missing.png")


def test_too_many_pixels_are_no_error_and_say_why() -> None:
    image = Image(np.zeros((1, MAX_PIXELS + 1), np.uint8))
    assert image.size == 0
    assert image.refusal is not None
    assert f"limit of {MAX_PIXELS:,}" in image.refusal


def test_a_list_is_one_content() -> None:
    images = ImageList([Image(COLOURS, caption=str(number)) for number in range(3)])
    assert [image.caption for image in unpack(images.content(), "images").document.images] == ["0", "1", "2"]
    assert (images.words(), images.first(1).words()) == ("(3 images, 9 x 7)", "(image, 9 x 7)")
