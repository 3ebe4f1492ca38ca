from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from paceline.monitoring.torch_build import TorchBuild, find_torch


def test_the_torch_of_this_python_is_found_as_its_metadata_names_it() -> None:
    found = find_torch()
    assert found is not None
    assert found.version.partition("+")[0] == importlib.metadata.version("torch").partition("+")[0]


@pytest.mark.parametrize(("cuda", "words"), [("'13.0'", "a build for CUDA 13.0"), ("None", "a build without CUDA")])
def test_a_build_says_what_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str, words: str) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('it is not to be imported')")
    (tmp_path / "torch" / "version.py").write_text(f"from typing import Optional\n__version__ = '2.13.0'\ncuda: Optional[str] = {cuda}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = find_torch()
    assert found == TorchBuild("2.13.0", None if cuda == "None" else cuda.strip("'"))
    assert found.description == f"torch 2.13.0 is {words}"
