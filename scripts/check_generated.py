"""The committed OpenAPI document and the dashboard's client types are what the code generates now."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.steps import ROOT

DASHBOARD = ROOT / "dashboard"
DOCUMENT = DASHBOARD / "openapi.json"
CLIENT = DASHBOARD / "src" / "lib" / "api.generated.ts"
REMEDY = "run: .venv/bin/python -m api.openapi > dashboard/openapi.json && npm --prefix dashboard run generate"


def main() -> int:
    stale = [path for path, fresh in ((DOCUMENT, _document_is_fresh()), (CLIENT, _client_is_fresh())) if not fresh]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is stale; {REMEDY}")
    return 1 if stale else 0


def _document_is_fresh() -> bool:
    done = subprocess.run([sys.executable, "-m", "api.openapi"], cwd=ROOT, capture_output=True, text=True, check=True)
    return bool(json.loads(done.stdout) == json.loads(DOCUMENT.read_text()))


def _client_is_fresh() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / CLIENT.name
        command = ["npx", "--no-install", "openapi-typescript", str(DOCUMENT), "--output", str(fresh)]
        subprocess.run(command, cwd=DASHBOARD, capture_output=True, check=True)
        return fresh.read_text() == CLIENT.read_text()


if __name__ == "__main__":
    sys.exit(main())
