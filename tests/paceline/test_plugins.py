"""What Lightning loads by itself changes nothing in programs outside a job.

That a rank gets the callback is shown in `tests/paceline/integrations/test_lightning.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paceline.job_ranks import run_alone, run_job

ASKS = """
import sys
from importlib.metadata import entry_points

(entry,) = [each for each in entry_points(group="lightning.pytorch.callbacks_factory") if each.name == "paceline"]
(older,) = [each for each in entry_points(group="pytorch_lightning.callbacks_factory") if each.name == "paceline"]
assert older.value == entry.value
print([type(callback).__name__ for callback in entry.load()()], "paceline.integrations" in sys.modules)
"""


def test_a_program_outside_a_job_gets_none(tmp_path: Path) -> None:
    assert run_alone(tmp_path, ASKS).stdout == "[] False\n"


@pytest.mark.slow("a job whose program imports Lightning")
def test_a_program_of_a_job_gets_the_logger_beside_packages_of_its_own_with_our_folders_names(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text("mine = True")
    (left,) = run_job(tmp_path, f"import training\nassert training.mine\n{ASKS}")
    assert left.stdout == "['AddPacelineLogger'] True\n"
