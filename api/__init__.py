"""The coordinator's REST API and WebSockets; imported as `paceline.api`."""

import gc
import sys

#: New objects before the garbage collector looks through them, and how many of its rounds there are to one of the next, longer kind. What is imported here
#: makes hundreds of thousands that stay, and a page of nodes thousands that need no collector. With Python's 700, 10 and 10 it takes a sixth of the start
#: of a coordinator, and of the time of a busy one.
gc.set_threshold(10_000, 10, 20)

if __name__ == "api":  # `uvicorn api.main:app` in a checkout. The same modules under a second name would have state of their own.
    from paceline.api import main

    sys.modules["api.main"] = main
    __path__ = []
