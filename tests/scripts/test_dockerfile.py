"""A Dockerfile as it is read for building without a container engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.images.dockerfile import (
    Copy,
    Instruction,
    UnknownInstructionError,
    argument_of,
    assignments_of,
    copy_of,
    instructions_of,
    parse,
)

TEXT = r"""
# a comment
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS first
ENV A=1 PATH=/opt/bin:$PATH
# hadolint ignore=DL3008
RUN apt-get update \
    # between the lines
    && apt-get install \
    && true # at the end

FROM first AS second
ARG INDEX=https://example.test/simple
COPY --from=first /a /b c/
USER 10001:10001
CMD ["--port", "8000"]
"""


def test_stages_begin_with_images_or_earlier_stages() -> None:
    found = parse(TEXT)
    assert [(stage.name, stage.base) for stage in found.stages.values()] == [("first", "debian:bookworm-slim"), ("second", "first")]
    assert [each.word for each in found.stages["second"].instructions] == ["ARG", "COPY", "USER", "CMD"]


def test_lines_that_go_on_are_one_instruction_without_the_comments_between_them() -> None:
    run = instructions_of(TEXT)[3]
    assert run == Instruction("RUN", "apt-get update && apt-get install && true # at the end")


def test_what_is_not_understood_is_refused() -> None:
    with pytest.raises(UnknownInstructionError, match="ONBUILD"):
        parse("FROM debian AS a\nONBUILD RUN true\n")
    with pytest.raises(UnknownInstructionError, match="--chown"):
        copy_of(Instruction("COPY", "--chown=1:1 a b"))


def test_copies_variables_and_arguments_are_read() -> None:
    assert copy_of(Instruction("COPY", "--from=first /a /b c/")) == Copy("first", ("/a", "/b"), "c/")
    assert assignments_of(Instruction("ENV", 'A=1 B="two words" PATH=/opt:$PATH'), {"PATH": "/bin"}) == {
        "A": "1",
        "B": "two words",
        "PATH": "/opt:/bin",
    }
    index = Instruction("ARG", "INDEX=default")
    assert argument_of(index, {}, {}) == ("INDEX", "default")
    assert argument_of(index, {"INDEX": "given"}, {}) == ("INDEX", "given")
    assert argument_of(Instruction("ARG", "BASE"), {}, {"BASE": "outer"}) == ("BASE", "outer")


def test_our_own_is_understood() -> None:
    found = parse((Path(__file__).parents[2] / "Dockerfile").read_text())
    assert {"coordinator", "agent"} <= found.stages.keys()
