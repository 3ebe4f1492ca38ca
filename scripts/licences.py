"""Writes docs/licences.md: every package that Paceline asks for, and its licence as the package's own metadata has it.

    python -m scripts.licences [--check]

Python's packages and what they bring along are those of this environment, the dashboard's are those of its lock file.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.requirements import Requirement

from scripts.steps import ROOT

FILE = ROOT / "docs" / "licences.md"
#: Extras of Paceline whose packages are not installed to develop it.
NOT_INSTALLED = {"datasets": "Apache-2.0", "ray": "Apache-2.0"}
#: Licences of which a copy must stay open or carry its source: each package under one has a sentence on the page.
RECIPROCAL = re.compile(r"\b(A?GPL|LGPL|MPL|EPL|CDDL|SSPL|BUSL)|Mozilla|Eclipse|GNU", re.IGNORECASE)
#: What torch's wheels for NVIDIA cards bring along and its others do not: the page has a sentence about it, and no rows.
FOR_CARDS = ("cuda-", "nvidia-", "triton")
_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .+()-]{1,60}\Z")
_NO_LICENCE = re.compile(r"copyright|dual|agreement", re.IGNORECASE)
HEAD = """\
# Licences

Paceline is under the [MIT licence](https://opensource.org/license/mit). What it asks for stands below, with the licence that each package's own metadata has. The page is
written by `python -m scripts.licences`, and a test holds it to the metadata of the pinned versions.

All but a few are permissive (MIT, BSD, Apache, ISC, PSF). The others, and what follows for those who use or pass on Paceline:

- **asyncssh** (EPL-2.0 or GPL-2.0-or-later, as you choose) comes with the extra `[ssh]` alone, and only the coordinator imports it, for nodes on hosts with SSH. It is used as it is; under the
  EPL-2.0 that asks nothing of Paceline's own code or of yours. Whoever passes on a changed asyncssh passes on its source. Without the extra nothing of it is there. The coordinator's image has it.
- **obstore** (MIT) and **uv** (MIT or Apache-2.0) are compiled Rust. uv is a program that agents start, and is linked into nothing.
- **pathspec**, **certifi** and parts of **tqdm** (MPL-2.0): the licence covers their own files. Whoever changes these files and passes them on passes on the changed source.
- **torch** for NVIDIA cards brings triton (MIT) and packages of NVIDIA (`nvidia-*`: cuDNN, NCCL, CUDA), which have NVIDIA's own licences. The CPU build has none of them.
- Programs that Paceline only speaks to or starts (PostgreSQL, Redis, Slurm, podman, docker, apptainer, OpenSSH) are not part of it.

Images that you build from the `Dockerfile` also have Debian's packages; `/usr/share/doc/*/copyright` in them tells theirs.
"""


@dataclass(frozen=True)
class LicensedPackage:
    """A package that Paceline asks for; `asked_by` is empty, or one of its extras."""

    name: str
    licence: str
    asked_by: str = ""


def asked_for() -> list[LicensedPackage]:
    """The packages of pyproject.toml, each once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, LicensedPackage] = {}
    for extra, requirements in groups.items():
        for requirement in requirements:
            name = key_of(Requirement(requirement).name)
            before = found.get(name)
            asked_by = ", ".join(filter(None, (before.asked_by, extra))) if before else extra
            found[name] = LicensedPackage(name, licence_of(name), asked_by)
    return list(found.values())


def brought_along(asked: Iterable[LicensedPackage]) -> list[LicensedPackage]:
    """Packages that these require in turn, as far as it is installed where Paceline is developed; each once, by name."""
    known = {each.name for each in asked}
    waiting = [Requirement(f"{name}[standard,asyncio]") for name in sorted(known - set(NOT_INSTALLED))]
    found: dict[str, LicensedPackage] = {}
    while waiting:
        requirement = waiting.pop()
        name = key_of(requirement.name)
        if name not in known | set(found):
            found[name] = LicensedPackage(name, licence_of(name))
        for text in _requires(name):
            needed = Requirement(text)
            wanted = needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in requirement.extras or ("",))
            if wanted and key_of(needed.name) not in known | set(found) and _is_installed(needed.name):
                waiting.append(needed)
    return sorted((each for each in found.values() if not each.name.startswith(FOR_CARDS)), key=lambda each: each.name)


def licence_of(name: str) -> str:
    """The licence in a package's metadata: the expression, else the text if it is a name, else the classifiers. Raises LookupError for none."""
    if name in NOT_INSTALLED:
        return NOT_INSTALLED[name]
    metadata = importlib.metadata.metadata(name)
    if "License-Expression" in metadata:
        return str(metadata["License-Expression"])
    text = str(metadata["License"]).strip() if "License" in metadata else ""
    if _LICENCE.match(text) and not _NO_LICENCE.search(text):
        return text
    classifiers = [
        line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or [] if line.startswith("License :: OSI Approved ::")
    ]
    if not classifiers:
        raise LookupError(f"the metadata of {name} names no licence")
    return " or ".join(dict.fromkeys(classifiers))


def of_the_dashboard() -> Iterator[LicensedPackage]:
    """Every package of the lock file that is built into the dashboard, those that others bring along included."""
    packages = json.loads((ROOT / "dashboard" / "package-lock.json").read_text())["packages"]
    for path, package in sorted(packages.items()):
        if path and not package.get("dev") and not package.get("devOptional"):
            yield LicensedPackage(path.rpartition("node_modules/")[2], package["license"])


def key_of(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name.lower())


def page() -> str:
    """The page as it should be."""
    asked = asked_for()
    lines = [HEAD, "## What Paceline asks for\n", "| package | licence | needed for |", "|---|---|---|"]
    lines += [f"| {each.name} | {each.licence} | {f'`[{each.asked_by}]`' if each.asked_by else 'everything'} |" for each in asked]
    lines += ["\n## What these bring along\n", "| package | licence |", "|---|---|"]
    lines += [f"| {each.name} | {each.licence} |" for each in brought_along(asked)]
    lines += ["\n## What is built into the dashboard\n", "| licence | packages |", "|---|---|"]
    by_licence: dict[str, list[str]] = {}
    for each in of_the_dashboard():
        by_licence.setdefault(each.licence, []).append(each.name)
    lines += [f"| {licence} | {', '.join(dict.fromkeys(names))} |" for licence, names in sorted(by_licence.items())]
    return "\n".join(lines) + "\n"


def _requires(name: str) -> list[str]:
    return (importlib.metadata.requires(name) or []) if _is_installed(name) else []


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is stale")
    if parser.parse_args().check:
        return 0 if FILE.read_text() == page() else 1
    FILE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
