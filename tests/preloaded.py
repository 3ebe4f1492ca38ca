"""Imported last by the clean process that tests fork ranks from, as the spawner does before it forks: or each would pay for it alone."""

from __future__ import annotations

import gc

from paceline.training.preload import preload

preload()
gc.collect()
gc.freeze()
