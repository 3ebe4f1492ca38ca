"""A script that does not want to end."""

import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ignoring SIGTERM", flush=True)
while True:
    signal.pause()
