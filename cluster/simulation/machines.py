"""The machines of a simulated cluster: nodes of equal cards, and what their agents say of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.cluster.protocol import Gpu, Inventory
from paceline.parallelism.planning.machines import Link

#: The platform and the label by which everybody can tell a simulated node from a real one.
PLATFORM = "simulated"
LABELS = {"simulated": "true"}
#: Beside real nodes: a job that was placed on both would never start.
TAINTS = {"simulated": "true"}
GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class CardModel:
    """A card's figures, as its maker's data sheet has them."""

    name: str  # as the driver gives it, so that its peak is known (`monitoring.devices`)
    memory_bytes: int
    power_limit_watts: float
    idle_watts: float
    sm_clock_mhz: float
    memory_clock_mhz: float


#: The links of a DGX H100: NVLink with 450 GB/s in each direction between its cards, and eight adapters of 400 Gbit/s for all of them together.
WITHIN, BETWEEN = Link(4.5e11, 1e-5), Link(4e11, 2e-5)
H100 = CardModel("NVIDIA H100 80GB HBM3", 80 * GIBIBYTE, 700.0, 70.0, 1980.0, 2619.0)


@dataclass(frozen=True)
class SimulatedMachine:
    """One node: its name, its number of slots, and the card in each of them."""

    name: str
    slots: int
    card: CardModel = H100
    cpus_per_slot: int = 12
    memory_per_slot: int = 128 * GIBIBYTE
    tainted: bool = False

    @property
    def cpu_count(self) -> int:
        return self.slots * self.cpus_per_slot

    @property
    def memory_bytes(self) -> int:
        return self.slots * self.memory_per_slot

    def uuid(self, slot: int) -> str:
        return f"GPU-simulated-{self.name}-{slot}"

    def inventory(self, version: str) -> Inventory:
        """The inventory that the node's agent reports. `version`: of Paceline."""
        cards = (
            Gpu(index=slot, uuid=self.uuid(slot), name=self.card.name, memory_bytes=self.card.memory_bytes) for slot in range(self.slots)
        )
        return Inventory(
            slots=self.slots,
            device="cuda",
            gpus=tuple(cards),
            cpu_count=self.cpu_count,
            memory_bytes=self.memory_bytes,
            hostname=self.name,
            platform=PLATFORM,
            versions={"paceline": version},
            labels=LABELS,
            taints=TAINTS if self.tainted else {},
        )
