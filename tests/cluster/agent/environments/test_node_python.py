"""The agent's own interpreter, as environments are built on it."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

from paceline.cluster.agent.environments.node_python import stand_in_wheel, this_python


def test_it_knows_its_torch_and_what_paceline_needs() -> None:
    node = this_python()
    assert node.torch is not None
    assert node.packages["packaging"]
    assert any(line.startswith("pydantic>=") for line in node.constraints)
    assert not any(line.startswith("torch") for line in node.constraints)
    assert "sympy" in " ".join(node.torch_requires)
    assert "nvidia" not in " ".join(node.torch_requires)


def test_the_stand_in_has_the_name_the_version_and_the_needs_of_torch_alone() -> None:
    node = replace(this_python(), packages={"torch": "9.9+x"}, torch_requires=("sympy>=1",))
    name, wheel = stand_in_wheel(node)
    assert name == "torch-9.9+x-py3-none-any.whl"
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        names = archive.namelist()
        metadata = archive.read("torch-9.9+x.dist-info/METADATA").decode()
    assert {name.partition("/")[0] for name in names} == {"torch-9.9+x.dist-info"}
    assert "Version: 9.9+x\nRequires-Dist: sympy>=1" in metadata
