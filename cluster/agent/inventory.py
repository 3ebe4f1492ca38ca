"""The inventory of this machine, and the address under which other machines reach it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket

import psutil

from paceline.cluster.agent.disks import machine_of, own_mounts, shared_mounts
from paceline.cluster.agent.offer import NodeOffer
from paceline.cluster.protocol import Inventory

_PACKAGES = ("torch", "paceline")


def take_inventory(
    offer: NodeOffer,
    labels: dict[str, str],
    checkpoint_disk: str | None = None,
    taints: dict[str, str] | None = None,
    container_engines: tuple[str, ...] = (),
    has_uv: bool | None = None,
) -> Inventory:
    """Describe this machine and what it offers. Slot i is the GPU `gpus[i]`, or a CPU slot where no GPU is offered."""
    return Inventory(
        slots=offer.slots,
        device=offer.device,
        gpus=offer.cards,
        cpu_count=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        hostname=platform.node(),
        platform=platform.platform(),
        versions=_versions() | (offer.sampler.versions if offer.sampler else {}),
        labels=labels,
        taints=taints or {},
        checkpoint_disk=checkpoint_disk,
        machine=machine_of(),
        shared_mounts=shared_mounts(),
        own_mounts=own_mounts(),
        container_engines=container_engines,
        has_uv=has_uv,
    )


def agent_version() -> str:
    return _package_version("paceline")


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {package: _package_version(package) for package in _PACKAGES}


def _package_version(package: str) -> str:
    """The version of a package from its metadata: asking torch itself would import it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def address_towards(host: str, port: int) -> str:
    """The local address from which packets to `host` leave. No packet is sent."""
    family, kind, protocol, _, peer = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(peer)
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str | None:
    """The network interface that owns `address`; None where the address is a name or belongs to no interface, and libraries choose
    themselves."""
    for name, owned in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == address for entry in owned):
            return name
    return None
