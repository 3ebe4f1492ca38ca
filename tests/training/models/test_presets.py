"""Named sizes: what they stand for, that they are as large as they say, and that the largest can be planned without memory."""

from __future__ import annotations

import resource
import time
from typing import Any, get_args

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from paceline.training.models.catalog import Model, parameter_count
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt import presets as gpt_presets
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.mlp import presets as mlp_presets
from paceline.training.models.mlp.config import MlpModel
from paceline.training.models.resnet import presets as resnet_presets
from paceline.training.models.resnet.config import ResnetModel

MODELS: TypeAdapter[Any] = TypeAdapter(Model)
MAX_PLANNING_SECONDS = 5.0  # of this process's own time, whatever else the machine does
MAX_PLANNING_KILOBYTES = 300_000
SCALES = {"m": 1e6, "b": 1e9}


def planned(spec: GptModel) -> gpt.Gpt:
    with torch.device("meta"):
        return gpt.build(spec)


@pytest.mark.parametrize("presets", [gpt_presets, mlp_presets, resnet_presets])
def test_every_name_has_a_shape(presets: Any) -> None:
    assert set(get_args(presets.Preset)) == set(presets.PRESETS)


@pytest.mark.parametrize("name", get_args(gpt_presets.Preset))
def test_a_gpt_is_as_large_as_its_name_says(name: gpt_presets.Preset) -> None:
    spec = GptModel(preset=name)
    size = name.removeprefix("gpt-")
    assert parameter_count(spec) == pytest.approx(float(size[:-1]) * SCALES[size[-1]], rel=0.05)
    assert parameter_count(spec) == sum(parameter.numel() for parameter in planned(spec).parameters())


def test_seventy_billion_parameters_are_planned_in_no_time_and_no_memory() -> None:
    planned(GptModel(preset="gpt-1m"))  # what torch imports for its first tensor without memory
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = planned(GptModel(preset="gpt-70b"))
    assert time.process_time() - began < MAX_PLANNING_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_PLANNING_KILOBYTES
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"meta"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"kind": "gpt", "preset": "gpt-124m"}, GptModel(layers=12, heads=12, dim=768, context=1024, vocab_size=50_304)),
        (
            {"kind": "gpt", "preset": "gpt-7b", "layers": 2, "dropout": 0.1},
            GptModel(preset="gpt-7b").model_copy(update={"layers": 2, "dropout": 0.1}),
        ),
        ({"kind": "mlp", "preset": "mlp-large"}, MlpModel(hidden=(2048, 2048, 2048))),
        ({"kind": "resnet", "preset": "resnet-110", "width": 8}, ResnetModel(depth=110, width=8)),
    ],
)
def test_a_preset_is_replaced_by_what_it_stands_for_and_single_fields_win(given: dict[str, Any], expected: Any) -> None:
    assert MODELS.validate_python(given) == expected
    assert MODELS.validate_python(given).preset is None


def test_a_stored_job_keeps_its_meaning_where_a_later_version_changes_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = GptModel(preset="gpt-1m", layers=3)
    monkeypatch.setattr(gpt_presets, "PRESETS", {"gpt-1m": gpt_presets.shape(9, 9, 90, 90, tied=False)})
    assert MODELS.validate_json(before.model_dump_json()) == before
    assert GptModel(preset="gpt-1m").layers == 9


@pytest.mark.parametrize("name", ["gpt-5", 7, ["gpt-1m"], "mlp-small"])
def test_an_unknown_name_is_refused_with_those_that_there_are(name: Any) -> None:
    with pytest.raises(ValidationError, match=r"gpt-1m.*gpt-70b"):
        MODELS.validate_python({"kind": "gpt", "preset": name})


def test_what_is_laid_over_a_preset_must_fit_it() -> None:
    with pytest.raises(ValidationError, match="dim=768 must be an even multiple of heads=5"):
        GptModel(preset="gpt-124m", heads=5)
