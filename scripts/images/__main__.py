"""Build a stage of the Dockerfile as a folder, where there is no container engine. For root on Linux; needs debootstrap.

python -m scripts.images coordinator --into FOLDER [--build-arg NAME=VALUE ...] [--shared FOLDER]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.images.dockerfile import parse
from scripts.images.roots import ImageBuilder
from scripts.steps import say

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", help="name of the stage")
    parser.add_argument("--into", type=Path, required=True, help="folder in which each stage becomes a folder")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--shared", type=Path, help="folder that each RUN sees as /run/build/shared")
    arguments = parser.parse_args()
    given = dict(each.split("=", 1) for each in arguments.build_arg)
    arguments.into.mkdir(parents=True, exist_ok=True)
    builder = ImageBuilder(parse((ROOT / "Dockerfile").read_text()), ROOT, arguments.into.resolve(), given, arguments.shared)
    root = builder.build(arguments.target)
    say(f"{arguments.target}: {root.folder}, run as {root.user}: {root.runs}")


if __name__ == "__main__":
    main()
