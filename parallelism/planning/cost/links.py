"""Links between devices and between machines by their makers' figures, one direction. Pure; no guesses.

Latencies are those of one step of NCCL's ring with its simple protocol, from the table that NCCL itself chooses its algorithms by
(NVIDIA/nccl, src/graph/tuning.cc, hwLat).
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.parallelism.planning.cost.errors import UnknownLinkError
from paceline.parallelism.planning.machines import Link

GIGABYTE, GIGABIT = 1e9, 1e9 / 8
#: The share of a link's bytes that carries data: 120 of 128, as in NCCL's LL128 protocol (tuning.cc too).
PAYLOAD = 120 / 128
_NVLINK_LATENCY, _PCI_LATENCY, _NETWORK_LATENCY = 3.4e-6, 5.7e-6, 9.6e-6


@dataclass(frozen=True)
class CatalogueLink:
    """A link as its maker describes it. `bytes_per_second`: of a device, or of an adapter, in one direction."""

    name: str
    bytes_per_second: float
    latency_seconds: float
    source: str

    def link(self, adapters: int = 1) -> Link:
        """Return the link of `adapters` adapters that a machine has side by side, as collectives find it."""
        return Link(PAYLOAD * adapters * self.bytes_per_second, self.latency_seconds)


LINKS: tuple[CatalogueLink, ...] = (
    CatalogueLink("NVLink 2", 150 * GIGABYTE, _NVLINK_LATENCY, "NVIDIA V100 datasheet: 300 GB/s in both directions"),
    CatalogueLink("NVLink 3", 300 * GIGABYTE, _NVLINK_LATENCY, "NVIDIA A100 datasheet: 600 GB/s in both directions"),
    CatalogueLink("NVLink 4", 450 * GIGABYTE, _NVLINK_LATENCY, "NVIDIA H100 datasheet: 900 GB/s in both directions"),
    CatalogueLink("NVLink 5", 900 * GIGABYTE, _NVLINK_LATENCY, "NVIDIA HGX B200 datasheet: 1.8 TB/s in both directions"),
    CatalogueLink("PCIe 3", 15.75 * GIGABYTE, _PCI_LATENCY, "PCI-SIG, 16 lanes of 8 GT/s, 128b/130b"),
    CatalogueLink("PCIe 4", 31.5 * GIGABYTE, _PCI_LATENCY, "PCI-SIG, 16 lanes of 16 GT/s, 128b/130b"),
    CatalogueLink("PCIe 5", 63 * GIGABYTE, _PCI_LATENCY, "PCI-SIG, 16 lanes of 32 GT/s, 128b/130b"),
    CatalogueLink("10 Gbit/s Ethernet", 10 * GIGABIT, _NETWORK_LATENCY, "IEEE 802.3ae"),
    CatalogueLink("25 Gbit/s Ethernet", 25 * GIGABIT, _NETWORK_LATENCY, "IEEE 802.3by"),
    CatalogueLink("100 Gbit/s InfiniBand", 100 * GIGABIT, _NETWORK_LATENCY, "NVIDIA (Mellanox) ConnectX-4 and -5 datasheets, EDR"),
    CatalogueLink("200 Gbit/s InfiniBand", 200 * GIGABIT, _NETWORK_LATENCY, "NVIDIA ConnectX-6 datasheet, HDR"),
    CatalogueLink("400 Gbit/s RDMA", 400 * GIGABIT, _NETWORK_LATENCY, "NVIDIA ConnectX-7 datasheet, NDR or 400 Gigabit Ethernet"),
)


def link_named(name: str) -> CatalogueLink:
    """Return the link of that name. Raises UnknownLinkError."""
    known = next((each for each in LINKS if each.name == name), None)
    if known is None:
        raise UnknownLinkError(name, (each.name for each in LINKS))
    return known
