"""Published training speeds, with the hardware and the plan that their authors state. Pure data; predictions beside them: `docs/scaling_tables.md`.

Only numbers that were read in the stated source are here. Rates are of one device: tokens or samples a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paceline.parallelism.model_shape import Precision
from paceline.parallelism.pipelines.schedules import ScheduleName
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.cost.devices import device_named
from paceline.parallelism.planning.cost.links import link_named
from paceline.parallelism.planning.cost.predict import Platform
from paceline.parallelism.planning.memory import Checkpointing, OptimizerKind


@dataclass(frozen=True)
class PublishedSource:
    name: str
    where: str  # the file or page that was read
    unit: str  # of `PublishedStep.rate`
    platform: Platform
    says: str  # what else the source states, and what had to be assumed


@dataclass(frozen=True)
class PublishedStep:
    """One row of a published table."""

    source: PublishedSource
    row: str  # as it can be found there
    model: str  # by its name in `MODELS`
    precision: Precision
    degrees: Degrees
    samples: int  # of a data rank in a step
    rate: float  # of one device
    context: int = 0  # tokens of a sequence; 0: no sequences
    micro_batches: int = 1  # into which a data rank's samples are divided
    checkpointing: Checkpointing = "none"
    schedule: ScheduleName = "1f1b"
    stages_per_rank: int = 1
    optimizer: OptimizerKind = "adamw"
    compiled: bool = False  # by torch.compile: what is no product runs in fused kernels
    float8: bool = False  # the products of linear layers
    overlaps: bool = True  # whether gradients are exchanged while backward goes on
    memory_gib: float | None = None  # of the fullest device
    calibrates: bool = False  # a share of a peak is taken from it, so that it proves nothing

    @property
    def units(self) -> int:
        """The tokens, or samples, of a data rank in a step: what the source counts."""
        return self.samples * (self.context if self.source.unit == "tokens/s" else 1)


GRAND_TETON = Platform(device_named("NVIDIA H100 96GB HBM2e"), 8, link_named("400 Gbit/s RDMA"), adapters=8)
DGX_1 = Platform(device_named("Tesla V100-SXM2-32GB"), 8, link_named("100 Gbit/s InfiniBand"), adapters=4)
ONE_ADAPTER = Platform(device_named("Tesla V100-SXM2-16GB"), 8, link_named("100 Gbit/s InfiniBand"))
WHITE_FIBER = Platform(device_named("NVIDIA H200"), 8, link_named("400 Gbit/s RDMA"), adapters=8)

TORCHTITAN = PublishedSource(
    "torchtitan, Llama 3.1 on 8 to 512 H100",
    "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md (December 2024)",
    "tokens/s",
    GRAND_TETON,
    "The number of micro-batches of its pipelines is not stated; assumed is torchtitan's default of that time, the number of stages, and two stages on a "
    "rank where they are interleaved. A power limit of 500 W, whose peak rates are not published.",
)
TORCHTITAN_H200 = PublishedSource(
    "torchtitan, Llama 3.1 8B on 32 and 64 H200",
    "pytorch/torchtitan, benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md (June 2025)",
    "tokens/s",
    WHITE_FIBER,
    "Local batch 2, torch.compile, float8; context and checkpointing are those of its llama3_8b.toml (8,192 tokens, selective).",
)
PYTORCH_DDP = PublishedSource(
    "PyTorch's benchmark of DistributedDataParallel, ResNet-50 on 1 to 16 V100",
    "pytorch/pytorch, benchmarks/distributed/ddp/README.md",
    "images/s",
    DGX_1,
    "fp32, batch 32 a device, 4 x 100 Gbit/s InfiniBand a machine; medians (p50).",
)
DLPERF_RESNET = PublishedSource(
    "DLPerf, NVIDIA's ResNet-50 v1.5 with DDP on 1 to 32 V100",
    "Oneflow-Inc/DLPerf, NVIDIADeepLearningExamples/PyTorch/resnet50v1.5/README.md (2020)",
    "images/s",
    ONE_ADAPTER,
    "One 100 Gbit/s InfiniBand adapter a machine. Images are decoded by DALI on the CPU; data take no time here.",
)
DLPERF_BERT = PublishedSource(
    "DLPerf, NVIDIA's BERT-base with DDP on 1 to 32 V100",
    "Oneflow-Inc/DLPerf, NVIDIADeepLearningExamples/PyTorch/BERT/README.md (2020)",
    "samples/s",
    ONE_ADAPTER,
    "128 tokens a sample, FusedAdam. Its script sends gradients in messages of 250 M elements (apex DDP, message_size=250000000), which is more than the "
    "model has: nothing is sent before backward ends, so nothing overlaps.",
)
SOURCES = (TORCHTITAN, TORCHTITAN_H200, PYTORCH_DDP, DLPERF_RESNET, DLPERF_BERT)


def published() -> tuple[PublishedStep, ...]:
    """Return all rows, by source."""
    return (*_fsdp(), *_context(), *_large(), *_h200(), *_pytorch_ddp(), *_dlperf_resnet(), *_dlperf_bert())


def _fsdp() -> Iterator[PublishedStep]:
    """Tables 1 and 3: Llama 3.1 8B, selective checkpointing, 2 x 8,192 tokens a device."""
    rates: Mapping[int, Mapping[str, tuple[float, float]]] = {
        8: {"FSDP": (5762, 82.4), "FSDP + torch.compile": (6667, 77.0), "FSDP + torch.compile + Float8": (8532, 76.8)},
        128: {"FSDP": (5605, 67.0), "FSDP + torch.compile": (6514, 62.0), "FSDP + torch.compile + Float8": (8380, 61.8)},
    }
    for ranks, by_technique in rates.items():
        for name, (rate, memory) in by_technique.items():
            yield PublishedStep(
                TORCHTITAN,
                name,
                "Llama 3.1 8B",
                "bf16",
                Degrees(shard=ranks),
                samples=2,
                context=8192,
                rate=rate,
                checkpointing="selective",
                compiled="compile" in name,
                float8="Float8" in name,
                memory_gib=memory,
            )


def _context() -> Iterator[PublishedStep]:
    """Tables 2 and 6: context parallelism, one sequence (8 in a pipeline) a data rank, full checkpointing, torch.compile, float8."""
    eight = {(8, 1): (3890, 83.9), (4, 2): (2540, 84.2), (2, 4): (1071, 84.0), (1, 8): (548, 84.5)}
    large = {(8, 1): (76, 75.3), (4, 2): (47, 75.9), (2, 4): (31, 77.1), (1, 8): (16, 84.9)}
    for model, tensor, pipeline, samples, rates in (("Llama 3.1 8B", 1, 1, 1, eight), ("Llama 3.1 405B", 8, 8, 8, large)):
        for (shard, context), (rate, memory) in rates.items():
            yield PublishedStep(
                TORCHTITAN,
                f"FSDP {shard}, CP {context}" + (f", TP {tensor}, PP {pipeline}" if tensor > 1 else ""),
                model,
                "bf16",
                Degrees(shard=shard, context=context, tensor=tensor, pipeline=pipeline),
                samples=samples,
                micro_batches=pipeline,
                context=32_768 * context,
                rate=rate,
                checkpointing="full",
                compiled=True,
                float8=True,
                memory_gib=memory,
            )


def _large() -> Iterator[PublishedStep]:
    """Tables 4 and 5: Llama 3.1 70B on 256 devices and 405B on 512, full checkpointing, torch.compile, float8."""
    common = {"precision": "bf16", "context": 8192, "checkpointing": "full", "compiled": True, "float8": True}
    two, three = Degrees(shard=32, tensor=8), Degrees(shard=8, tensor=8, pipeline=8)
    for name, rate, memory in (("2D", 829, 71.9), ("2D + AsyncTP", 876, 67.6)):
        yield PublishedStep(TORCHTITAN, name, "Llama 3.1 70B", degrees=two, samples=16, rate=rate, memory_gib=memory, **common)  # type: ignore[arg-type]
    plain = PublishedStep(
        TORCHTITAN,
        "3D, 1F1B",
        "Llama 3.1 405B",
        degrees=three,
        samples=32,
        micro_batches=8,
        rate=100,
        memory_gib=82.5,
        **common,  # type: ignore[arg-type]
    )
    yield plain
    yield PublishedStep(
        TORCHTITAN,
        "3D, Interleaved 1F1B",
        "Llama 3.1 405B",
        degrees=three,
        samples=32,
        micro_batches=16,
        rate=128,
        schedule="interleaved_1f1b",
        stages_per_rank=2,
        memory_gib=72.7,
        **common,  # type: ignore[arg-type]
    )


def _h200() -> Iterator[PublishedStep]:
    for nodes, rate, memory in ((4, 10938, 47.96), (8, 10753, 46.97)):
        yield PublishedStep(
            TORCHTITAN_H200,
            f"{nodes} nodes",
            "Llama 3.1 8B",
            "bf16",
            Degrees(shard=8 * nodes),
            samples=2,
            context=8192,
            rate=rate,
            checkpointing="selective",
            compiled=True,
            float8=True,
            memory_gib=memory,
        )


def _pytorch_ddp() -> Iterator[PublishedStep]:
    for ranks, row, rate in ((1, "no ddp", 329), (2, "1M/2G", 310), (4, "1M/4G", 310), (8, "1M/8G", 307), (16, "2M/8G", 306)):
        degrees = Degrees(replicate=ranks)
        yield PublishedStep(PYTORCH_DDP, row, "ResNet-50", "fp32", degrees, samples=32, rate=rate, optimizer="sgd", calibrates=ranks == 1)


def _dlperf_resnet() -> Iterator[PublishedStep]:
    """The source gives the rate of all devices together."""
    plain = {1: 367.29, 4: 1449.48, 8: 2887.65, 16: 5716.79, 32: 10917.09}
    mixed = {1: 802.9, 4: 3137.44, 8: 6154.66, 16: 11991.94, 32: 22551.16}
    precisions: tuple[tuple[str, Precision, int, Mapping[int, float]], ...] = (("FP32", "fp32", 128, plain), ("AMP", "fp16", 256, mixed))
    for name, precision, samples, rates in precisions:
        for ranks, rate in rates.items():
            degrees = Degrees(replicate=ranks)
            yield PublishedStep(
                DLPERF_RESNET, f"{name}, {samples}", "ResNet-50", precision, degrees, samples, rate / ranks, optimizer="sgd"
            )


def _dlperf_bert() -> Iterator[PublishedStep]:
    """The source gives the rate of all devices together."""
    rates: Mapping[tuple[Precision, int], Mapping[int, float]] = {
        ("fp32", 32): {1: 119.6, 4: 457.72, 8: 921.32, 16: 1499.4, 32: 2885.81},
        ("fp32", 48): {1: 121.94, 4: 464.66, 8: 928.01, 16: 1584.32, 32: 3039.3},
        ("fp16", 64): {1: 444.51, 4: 1671.66, 8: 3251.7, 16: 4936.92, 32: 9331.72},
        ("fp16", 96): {1: 462.35, 4: 1727.93, 8: 3287.12, 16: 5426.07, 32: 10349.12},
    }
    for (precision, samples), by_ranks in rates.items():
        for ranks, rate in by_ranks.items():
            name = f"{precision.upper()}, {samples}"
            degrees = Degrees(replicate=ranks)
            yield PublishedStep(DLPERF_BERT, name, "BERT-base", precision, degrees, samples, rate / ranks, context=128, overlaps=False)
