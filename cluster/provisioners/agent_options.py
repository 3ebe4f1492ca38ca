"""Fields of providers that every agent of a pool is started with, whatever starts it: ports, authority, notices."""

from __future__ import annotations

import shlex
from typing import Annotated

from pydantic import AfterValidator, Field

from paceline.training.schema.parts import Part, Text, inconsistent
from paceline.training.schema.spelling import SpellingRule

HIGHEST_PORT = 65535


def _check(text: str) -> str:
    first, last = map(int, text.split("-"))
    if not 1 <= first < last <= HIGHEST_PORT:
        raise inconsistent("{text} is no range of ports: write the lower one first, within 1-{highest}", text=text, highest=HIGHEST_PORT)
    return text


PortRange = Annotated[str, SpellingRule(r"^[0-9]{1,5}-[0-9]{1,5}$", "a range of ports", "29500-29599"), AfterValidator(_check)]
AbsolutePath = Annotated[str, SpellingRule(r"^/[^\r\n\0]{1,4095}$", "an absolute path", "/etc/paceline/ca.pem")]


def _check_command(text: str) -> str:
    try:
        shlex.split(text)
    except ValueError as error:
        raise inconsistent("{text} is no command line: {why}", text=repr(text), why=str(error)) from None
    return text


class AgentPorts(Part):
    """Fields of every provider."""

    ports: PortRange | None = Field(
        None,
        description="Ports for the gangs' stores and for MASTER_PORT of scripts, as 'paceline worker --ports'. Default: any free port.",
    )

    @property
    def agent_words(self) -> list[str]:
        """The words of `paceline worker` for these fields."""
        return ["--ports", self.ports] if self.ports else []


class AgentAuthority(AgentPorts):
    """Further fields of providers whose machines have files of their own."""

    authority: AbsolutePath | None = Field(
        None,
        description="File on each machine with the authority of the coordinator's certificate, as 'paceline worker --ca'. "
        "Default: the one that the join token names, or those that the machine knows.",
    )

    @property
    def agent_words(self) -> list[str]:
        return [*super().agent_words, *(["--ca", self.authority] if self.authority else [])]


class AgentNotices(AgentAuthority):
    """Further fields of providers whose engine does not say that a machine will be taken away."""

    notice_command: Annotated[Text, Field(min_length=1, max_length=1000), AfterValidator(_check_command)] | None = Field(
        None,
        description="Command on each machine that ends with 0 once the machine will be taken away, as 'paceline worker --notice-command'.",
    )
    notice_file: AbsolutePath | None = Field(
        None, description="File that appears on a machine once it will be taken away, as 'paceline worker --notice-file'."
    )

    @property
    def agent_words(self) -> list[str]:
        words = ["--notice-command", self.notice_command] if self.notice_command else []
        return [*super().agent_words, *words, *(["--notice-file", self.notice_file] if self.notice_file else [])]
