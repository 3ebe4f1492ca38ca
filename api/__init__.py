"""The coordinator's REST API and WebSockets; imported as `paceline.api`."""

import sys

if __name__ == "api":  # `uvicorn api.main:app` in a checkout. The same modules under a second name would have state of their own.
    from paceline.api import main

    sys.modules["api.main"] = main
    __path__ = []
