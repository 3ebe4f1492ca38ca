"""Requirement lines of a spec: written in one way, read from files within the folder, and refused where no node could use them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from paceline.training.schema.environment import Environment
from paceline.training.schema.packages import MOST_REQUIREMENTS, expand, normalized
from paceline.training.spec.job import JobSpec


@pytest.mark.parametrize(
    ("line", "stored"),
    [
        (" Tiktoken >= 0.9 ", "tiktoken>=0.9"),
        ("numpy[extra]==2.*; python_version>'3'", 'numpy[extra]==2.*; python_version > "3"'),
        ("-rsub/more.txt", "-r sub/more.txt"),
        ("--requirement=a.txt", "-r a.txt"),
        ("-i https://host/simple", "--index-url https://host/simple"),
        ("--pre", "--pre"),
        ("--find-links https://host/simple?token=abc", "--find-links https://host/simple?token=abc"),
        ("--find-links=https://host/simple?token=abc", "--find-links https://host/simple?token=abc"),
        ("--extra-index-url\thttps://host/a=b", "--extra-index-url https://host/a=b"),
        ("--index-url = https://host/simple", "--index-url https://host/simple"),
        ("a @ git+ssh://git@host/a.git@main", "a @ git+ssh://git@host/a.git@main"),
    ],
)
def test_a_line_is_stored_in_one_spelling(line: str, stored: str) -> None:
    assert normalized(line) == stored
    assert normalized(stored) == stored


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("two words", "is no requirement"),
        ("-e .", "environment.variables.PYTHONPATH"),
        ("./mine.whl", "--workdir"),
        ("a @ file:///tmp/a.whl", "--workdir"),
        ("--trusted-host x", "--index-url, --extra-index-url"),
        ("--index-url /opt/simple", "https://host/simple"),
        ("--index-url https://me:secret@host/simple", "keep it on the nodes"),
        ("a @ https://token@host/a.whl", "keep it on the nodes"),
        ("a==1 --hash=sha256:00", "leave it out"),
    ],
)
def test_what_no_node_could_use_is_refused_with_the_way_out(line: str, says: str) -> None:
    with pytest.raises(PydanticCustomError) as refused:
        normalized(line)
    assert says in refused.value.message()
    assert "secret" not in refused.value.message()


FILES = {
    "a.txt": "# note\nfoo==1  # why\n\n-r sub/b.txt\nbaz \\\n  >=2\n",
    "sub/b.txt": "-r c.txt\n-r ../a.txt\n",
    "sub/c.txt": "\ufeffbar\nfoo==1\n",
}


def test_files_are_read_where_they_are_named_and_each_once() -> None:
    assert expand(("-r a.txt", "x"), FILES.__getitem__) == ("foo==1", "bar", "baz>=2", "x")


def test_a_bad_line_of_a_file_is_named() -> None:
    with pytest.raises(PydanticCustomError, match=r"a\.txt line 3: -e \. is a folder"):
        expand(("-r a.txt",), {"a.txt": "foo\n\n-e .\n"}.__getitem__)


def test_files_outside_of_the_folder_and_too_many_lines_are_refused() -> None:
    with pytest.raises(PydanticCustomError, match="outside of the job's folder"):
        expand(("-r ../a.txt",), FILES.__getitem__)
    many = "\n".join(f"p{number}" for number in range(MOST_REQUIREMENTS + 1))
    with pytest.raises(PydanticCustomError, match=f"the limit is {MOST_REQUIREMENTS}"):
        expand(("-r a.txt",), {"a.txt": many}.__getitem__)


def test_a_text_names_a_file() -> None:
    environment = Environment(requirements="requirements.txt")
    assert environment.requirements == ("-r requirements.txt",)
    assert environment.unread_requirements == ["requirements.txt"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"requirements": ["a"], "python": "/p"}, "leave one out"),
        ({"own_torch": True}, "with torch among them"),
        ({"mounts": ["/data"]}, "environment.mounts are for environment.image"),
        ({"python": "venv/bin/python"}, "not an absolute path"),
        ({"image": "a b"}, "container image"),
    ],
)
def test_packages_that_contradict_each_other_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Environment.model_validate(given)


@pytest.mark.parametrize("given", [{"image": "x"}, {"requirements": ["torch"], "own_torch": True}])
def test_a_container_and_another_torch_are_for_scripts(given: dict[str, object]) -> None:
    JobSpec.model_validate({"name": "job", "script": {"path": "a.py"}, "environment": given})
    with pytest.raises(ValidationError, match="is for scripts"):
        JobSpec.model_validate({"name": "job", "entrypoint": "a:b", "training": {"steps": 1}, "environment": given})


def test_nodes_of_the_version_before_are_not_told_of_fields_that_are_not_used() -> None:
    stored = JobSpec.model_validate({"name": "job", "script": {"path": "a.py"}}).model_dump(mode="json")["environment"]
    assert not {"requirements", "own_torch", "python", "image", "mounts"} & stored.keys()
