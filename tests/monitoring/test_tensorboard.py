"""What we write, TensorBoard itself reads."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from paceline.monitoring import tensorboard
from tests.event_files import read_scalars


@pytest.mark.parametrize(
    ("data", "checksum"),
    [(b"", 0), (b"a", 0xC1D04330), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],
)
def test_the_checksum_is_the_one_of_rfc_3720(data: bytes, checksum: int) -> None:
    assert tensorboard.crc32c(data) == checksum


@pytest.mark.parametrize(("number", "encoded"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_varints_carry_seven_bits_a_byte(number: int, encoded: bytes) -> None:
    assert tensorboard.varint(number) == encoded


def test_tensorboard_reads_every_scalar_back(tmp_path: Path) -> None:
    began = 1_763_640_000.5
    content = [tensorboard.header(began)]
    content += [tensorboard.scalars(step, began + step, {"loss": 1 / step, "a b/ü": float(step)}) for step in (1, 2, 3_000_000_000)]
    (tmp_path / tensorboard.file_name(began, "test")).write_bytes(b"".join(content))
    found = read_scalars(tmp_path)
    assert [point.step for point in found["loss"]] == [1, 2, 3_000_000_000]
    assert [point.value for point in found["loss"]] == pytest.approx([1.0, 0.5, 1 / 3e9])
    assert [point.wall_time for point in found["a b/ü"]] == [began + 1, began + 2, began + 3_000_000_000]


def test_values_that_are_no_numbers_survive(tmp_path: Path) -> None:
    values = {"nan": math.nan, "infinite": math.inf, "below": -math.inf, "beyond_float": 1e300}
    (tmp_path / tensorboard.file_name(0.0, "test")).write_bytes(tensorboard.header(0.0) + tensorboard.scalars(1, 0.0, values))
    found = {tag: points[0].value for tag, points in read_scalars(tmp_path).items()}
    assert math.isnan(found.pop("nan"))
    assert found == {"infinite": math.inf, "below": -math.inf, "beyond_float": math.inf}


def test_a_damaged_record_is_noticed(tmp_path: Path) -> None:
    """TensorBoard checks what we wrote: else the tests above would prove little about the checksums."""
    whole = tensorboard.header(0.0) + tensorboard.scalars(1, 0.0, {"loss": 1.0})
    (tmp_path / tensorboard.file_name(0.0, "test")).write_bytes(whole[:-5] + b"\x00" + whole[-4:])
    assert read_scalars(tmp_path) == {}
