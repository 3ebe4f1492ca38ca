"""The committed OpenAPI document, what the dashboard and the command line have from it, and the dashboard's constants are what the code generates now."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.generate_cli_types import DOCUMENT, TYPES, generated
from scripts.steps import ROOT

DASHBOARD = ROOT / "dashboard"
CLIENT = DASHBOARD / "src" / "lib" / "api.generated.ts"
CONSTANTS = DASHBOARD / "src" / "lib" / "constants.generated.ts"
REMEDY = "run: make generate"


def main() -> int:
    checks = (
        (DOCUMENT, _document_is_fresh),
        (CLIENT, _client_is_fresh),
        (TYPES, _types_are_fresh),
        (CONSTANTS, _constants_are_fresh),
    )
    stale = [path for path, is_fresh in checks if not is_fresh()]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is stale; {REMEDY}")
    return 1 if stale else 0


def _document_is_fresh() -> bool:
    return bool(json.loads(_output_of("paceline.api.openapi")) == json.loads(DOCUMENT.read_text()))


def _client_is_fresh() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / CLIENT.name
        command = ["npx", "--no-install", "openapi-typescript", str(DOCUMENT), "--output", str(fresh)]
        subprocess.run(command, cwd=DASHBOARD, capture_output=True, check=True)
        return fresh.read_text() == CLIENT.read_text()


def _types_are_fresh() -> bool:
    return generated(json.loads(DOCUMENT.read_text())) == TYPES.read_text()


def _constants_are_fresh() -> bool:
    return _output_of("paceline.api.constants") == CONSTANTS.read_text()


def _output_of(module: str) -> str:
    return subprocess.run([sys.executable, "-m", module], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
