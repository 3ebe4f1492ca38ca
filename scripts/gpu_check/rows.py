"""All rows, in the order of the table: what others need comes first."""

from __future__ import annotations

from scripts.gpu_check import exposure, groups, readings, speed, stack, strategies
from scripts.gpu_check.outcome import Row

ROWS: dict[str, Row] = {
    "group_of_one": Row(groups.group_of_one),
    "group_of_all": Row(groups.group_of_all),
    "abort": Row(groups.abort),
    "exposure": Row(exposure.check),
    **{name: Row(strategies.check(plan), 2 * strategies.TIMEOUT_SECONDS) for name, plan in strategies.PLANS.items()},
    **{f"{kind}_resumed": Row(strategies.check_resumed(each), 2 * strategies.TIMEOUT_SECONDS) for kind, each in strategies.LOSSY.items()},
    "readings": Row(readings.check),
    "readings_cost": Row(readings.check_cost, 2 * readings.READINGS),
    "stack": Row(stack.check, stack.SECONDS),
    "memory_estimate": Row(speed.check_memory, 600),
    "telemetry": Row(speed.check_telemetry, 300),
    "speed_124m": Row(speed.beside_bare("gpt-124m", 8), 600),
    "speed_1b": Row(speed.beside_bare("gpt-1b", 4), 900),
}
