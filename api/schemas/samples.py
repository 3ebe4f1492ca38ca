"""The audit of samples: the samples that each committed step used."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import Schema


class SampleRange(Schema):
    """Steps that follow each other in one generation, and the places of the endless line of samples that they used."""

    generation: int
    first_step: int
    last_step: int
    first_sample: int = Field(description="place in the line, counted from 0 over all epochs")
    samples: int
    epoch: int | None = Field(description="of the first place, from 0; null where the size of the data is not known")


class EpochUse(Schema):
    epoch: int = Field(description="from 0")
    samples: int = Field(description="in the data set")
    used: int = Field(description="different places of this epoch that were used")
    duplicates: int = Field(description="uses beyond the first")
    complete: bool


class SampleAudit(Schema):
    job_id: str
    recorded: bool = Field(description="false: this job does not tell which samples its steps use")
    exactly_once: bool | None = Field(description="no place used twice, none left out up to the newest step; null where it is not recorded")
    text: str
    findings: list[str] = Field(description="each fault that was found, in words")
    first_step: int | None
    last_step: int | None
    steps: int
    samples: int = Field(description="uses, duplicates included")
    duplicates: int
    missing: int
    discarded_steps: int = Field(description="steps that a later generation did again from a checkpoint: they do not count")
    epochs: list[EpochUse] = Field(description="the newest 1,000")
    ranges: list[SampleRange]
    next_cursor: str | None = Field(None, description="pass as cursor= for further ranges; null on the last page")
