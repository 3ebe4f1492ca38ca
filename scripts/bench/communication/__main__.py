"""All figures of communication: one table, and with --json FILE a file. Needs root and iproute2, and a machine with nothing else to do.

python -m scripts.bench.communication [--quick] [--json FILE] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.bench.figures import Figure, machine, report
from scripts.steps import ROOT, say

#: The benchmarks by name.
MODULES = {
    **{name: f"scripts.bench.communication.{name}" for name in ("sums", "overlap", "compression", "auto", "time_to_loss")},
    "reproducible": "scripts.bench.reproducible",  # needs no hosts of its own
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*MODULES, []], metavar="NAME", help=f"of {', '.join(MODULES)}; default: all")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, steps and links")
    given = parser.parse_args()
    figures: list[Figure] = []
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names or MODULES:
            say(name)
            file = Path(folder) / f"{name}.json"
            command = [
                sys.executable,
                "-m",
                MODULES[name],
                "--json",
                str(file),
                *(["--quick"] if given.quick else []),
            ]
            if subprocess.run(command, cwd=ROOT, check=False).returncode:
                broken.append(name)
            else:
                figures += [Figure(**figure) for figure in json.loads(file.read_text())]
    print(f"\n{machine()}")
    report(figures, given.json)
    if broken:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
