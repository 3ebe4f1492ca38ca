"""Where the coordinator leaves the API key that its starter asked for at the very first start. Imports nothing: the command line reads it too."""

from __future__ import annotations

#: In the data folder, until the starter has taken it.
FIRST_KEY = "first_key.json"
