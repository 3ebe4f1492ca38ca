from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from paceline.cluster.agent.inventory import address_towards, interface_of, take_inventory

TIMEOUT_SECONDS = 60


def test_without_gpus_slots_are_cpus_or_what_was_asked_for() -> None:
    inventory = take_inventory(None, None, {})
    assert inventory.slots == inventory.cpu_count == len(os.sched_getaffinity(0))
    assert take_inventory(None, 3, {}).slots == 3
    assert inventory.device == "cpu"
    assert set(inventory.versions) == {"python", "torch", "paceline"}


def test_the_way_to_a_local_server_is_the_loopback_interface() -> None:
    assert address_towards("127.0.0.1", 8000) == "127.0.0.1"
    assert interface_of("127.0.0.1") == "lo"


@pytest.mark.parametrize("address", ["192.0.2.77", "node-1.example"])
def test_an_address_that_no_interface_owns_leaves_the_choice_open(address: str) -> None:
    assert interface_of(address) is None


def test_a_name_that_does_not_resolve_is_an_os_error() -> None:
    with pytest.raises(socket.gaierror):
        address_towards("no-such-host.invalid", 80)


def test_the_agent_starts_without_torch() -> None:
    program = "import sys, paceline.cluster.agent.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=TIMEOUT_SECONDS).returncode == 0
