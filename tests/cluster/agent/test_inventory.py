from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cluster.agent.card_locks import CardLocks
from paceline.cluster.agent.inventory import address_towards, interface_of, take_inventory
from paceline.cluster.agent.offer import NodeOffer

TIMEOUT_SECONDS = 60


def test_cpu_slots_are_described_without_a_driver(tmp_path: Path) -> None:
    offer = NodeOffer((), 3, CardLocks(tmp_path), None, "no GPU", hides_cards=False)
    inventory = take_inventory(offer, {"zone": "a"})
    assert (inventory.device, inventory.slots, inventory.gpus, inventory.labels) == ("cpu", 3, (), {"zone": "a"})
    assert inventory.cpu_count == len(os.sched_getaffinity(0))
    assert inventory.has_uv is None
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
