"""Secrets in output, names and messages are masked, however they are printed and wherever a line is cut."""

from __future__ import annotations

import base64
import itertools
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.agent.upload.masking import MASK, NOTHING, WITHHELD, SecretMask, shown
from paceline.cluster.agent.upload.output import MAX_LINE_BYTES, OutputReader

SECRET = 'hf_Canary+0123/456 "ü" end'
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nw0BAQEFAASCBKcwggSj\n-----END KEY-----\n"


@pytest.mark.parametrize(
    "printed",
    [
        SECRET,
        json.dumps({"token": SECRET}),
        json.dumps({"token": SECRET}, ensure_ascii=False),
        repr({"token": SECRET}),
        f"https://host/?q={quote(SECRET, safe='')}",
        SECRET.encode().hex(),
        *(base64.b64encode(before + SECRET.encode() + b" and more").decode() for before in (b"", b"u", b"us", b"user:")),
        base64.urlsafe_b64encode(b"u:" + SECRET.encode()).decode(),
    ],
)
def test_a_secret_is_masked_in_each_form(printed: str) -> None:
    mask = SecretMask([SECRET])
    for text in (mask.text(f"<{printed}>"), shown(mask.cover(f"<{printed}>".encode()).decode("utf-8", "replace"))):
        assert MASK in text
        assert not any(part in text for part in ("Canary", "0123", "2BYW5hcnk", "Q2FuYXJ5", "NhbmFye", "43616e617279"))
        assert (text[0], text[-1]) == ("<", ">")


def test_each_line_of_a_value_counts_by_itself() -> None:
    mask = SecretMask([KEY])
    covered = mask.cover(f"key:\n{KEY}done\n".encode())
    assert shown(covered.decode()) == "key:\n***\n***\n***\n***\ndone\n"
    assert len(covered) == len(f"key:\n{KEY}done\n")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("cannot use hf_Canary+01", "cannot use ***"),  # cut off by a limit of characters
        ('456 "ü" end is wrong', "*** is wrong"),
        ('begins hf_Canary+ … 456 "ü" end', "begins *** … ***"),
        ("ordinary words ... stay", "ordinary words ... stay"),
        ("hf_ alone is no secret", "hf_ alone is no secret"),
    ],
)
def test_texts_that_were_shortened_have_no_parts_of_a_secret(text: str, masked: str) -> None:
    assert SecretMask([SECRET]).text(text).replace("*** ***", "***") == masked


def test_names_and_values_of_documents_are_masked() -> None:
    document = {f"loss/{SECRET}": 1.5, "data": [{"text": f"at {SECRET}"}, 3, None, True]}
    assert SecretMask([SECRET]).document(document) == {"loss/***": 1.5, "data": [{"text": "at ***"}, 3, None, True]}
    assert NOTHING.document(document) == document


def test_what_has_unknown_secrets_is_masked_altogether() -> None:
    assert shown(WITHHELD.cover(b"one\ntwo words\n").decode()) == "***\n***\n"
    assert (WITHHELD.text("words"), WITHHELD.text(""), WITHHELD.is_in(b"x")) == ("***", "", True)
    assert (WITHHELD | SecretMask([SECRET])).is_in(b"other")
    assert (SecretMask([SECRET]) | WITHHELD).is_in(b"other")


def read_all(path: Path, mask: SecretMask, pieces: list[bytes]) -> list[str]:
    """The lines of a file that grows piece by piece, with a pause of two seconds behind each; a new reader each time, as after a crash of the agent."""
    lines: list[str] = []
    offset, cuts, now = 0, set[int](), 0.0
    for number, piece in enumerate([*pieces, b""]):
        with open(path, "ab") as file:
            file.write(piece)
        reader = OutputReader(path, cuts)
        for moment in (now, now + 2.0):
            found = reader.read(offset, len(lines), 1000, moment, final=number == len(pieces), mask=mask)
            lines += [each.line.text for each in found]
            offset = found[-1].end if found else offset
        cuts, now = reader.cuts, now + 3.0
    return lines


@given(st.lists(st.integers(0, 60), max_size=6), st.integers(0, 20))
def test_a_secret_that_is_printed_in_pieces_never_leaves(cuts: list[int], before: int) -> None:
    import tempfile

    text = b"a" * before + b" hf_Canary0123456789 rest\n"
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[first:last] for first, last in itertools.pairwise(places)]
    with tempfile.TemporaryDirectory() as folder:
        lines = read_all(Path(folder, "output.log"), SecretMask(["hf_Canary0123456789"]), pieces)
    together = "".join(lines)
    for start in range(19 - 3):
        assert "hf_Canary0123456789"[start : start + 4] not in together
    assert together.endswith(" rest") or "***" in together


@pytest.mark.parametrize("before", [MAX_LINE_BYTES - 12, MAX_LINE_BYTES - 1, MAX_LINE_BYTES, (1 << 20) - 8])
def test_a_secret_across_the_end_of_a_long_line_or_of_what_is_read_at_once_is_masked(tmp_path: Path, before: int) -> None:
    output = tmp_path / "output.log"
    output.write_bytes(b"x" * before + b"hf_Canary0123456789 rest\nnext\n")
    plain, masked = (
        read_all(output.with_name(f"{name}.log"), mask, [output.read_bytes()])
        for name, mask in (("p", NOTHING), ("m", SecretMask(["hf_Canary0123456789"])))
    )
    assert len(plain) == len(masked)  # the same lines with the same numbers
    assert "Canary" in "".join(plain).replace(" … (line over 16 KiB, continued)", "")
    assert "Canary" not in "".join(masked).replace(" … (line over 16 KiB, continued)", "")
    assert masked[-2].endswith("*** rest")
    assert masked[-1] == "next"
