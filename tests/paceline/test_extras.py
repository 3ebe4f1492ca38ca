"""What messages say to type for an optional package."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from paceline import extras
from paceline.cli.errors import StackError
from paceline.cli.local import torch_here


def not_installed(name: str) -> None:
    raise importlib.metadata.PackageNotFoundError(name)


def test_where_paceline_is_installed_pip_adds_the_extra() -> None:
    assert extras.pip_install("ssh") == "pip install 'paceline[ssh]'"


def test_in_a_checkout_that_is_used_by_hand_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No index has Paceline: the line failed, or brought a stranger's package."""
    monkeypatch.setattr(extras, "distribution", not_installed)
    assert extras.pip_install("ssh") == "pip install 'asyncssh>=2.24'"
    assert "'torch==2.13.*'" in extras.pip_install("worker")
    monkeypatch.setattr(torch_here, "find_spec", lambda name: None)
    with pytest.raises(StackError) as raised:
        torch_here.require_torch("a rank")
    assert "'torch==2.13.*'" in str(raised.value.hint)


def test_what_is_no_extra_and_no_checkout_is_named_as_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extras, "distribution", not_installed)
    assert extras.pip_install("none") == "pip install 'paceline[none]'"
    monkeypatch.setattr(extras, "ROOT", tmp_path)
    assert extras.pip_install("ssh") == "pip install 'paceline[ssh]'"
