"""Tests that compile run where a compiler is, and say so where there is none."""

from __future__ import annotations

import os
import shutil

import pytest

#: The first compilation in a process, on a machine with a core for each of two ranks, and nothing in torch's cache.
COMPILE_TIMEOUT_SECONDS = 300.0

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="torch.compile on a CPU needs a C++ compiler: apt-get install g++"
)
