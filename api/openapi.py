"""The OpenAPI document that the dashboard's types are made from: `python -m paceline.api.openapi > dashboard/openapi.json`."""

from __future__ import annotations

import json
import sys
from typing import Any

from fastapi import FastAPI


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document. Operation ids are function names; problems are problem+json only."""
    return app.openapi()


if __name__ == "__main__":
    from paceline.api.main import create_app

    json.dump(document(create_app()), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
