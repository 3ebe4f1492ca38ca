"""The page `docs/scaling_tables.md`: published rows with the predictions beside them, the catalogue, and what other frameworks print."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from paceline.parallelism.planning.cost.devices import DEVICES, SHARE_OF_MEMORY, SHARE_OF_PEAK, TERA
from paceline.parallelism.planning.cost.links import LINKS, PAYLOAD
from paceline.parallelism.planning.cost.published import DLPERF_RESNET, PYTORCH_DDP, SOURCES, PublishedSource, PublishedStep
from scripts.scaling_tables.claims import (
    CLAIMS,
    SETTINGS,
    Claim,
    needed_network,
    needed_share_of_peak,
    predicted_efficiency,
    predicted_rate,
    row_of,
)
from scripts.scaling_tables.predictions import ComparedStep, compare

GIGA, GIGABIT = 1e9, 1e9 / 8
INTRODUCTION = """# Published scaling tables, and what the cost model predicts for them

Written by `python -m scripts.scaling_tables`; a test holds this page to the code. Predictions are those of `parallelism/planning/cost/`, from the hardware that a source
states and nothing else: no number is adjusted to a row. What a model gets of a peak is one number for tensor cores, {tensor:.0%} (the planner's, from other
publications: `hardware_defaults.py`), and one for plain fp32 units, {plain:.0%}, which is taken from the first row of PyTorch's own benchmark; that row is not counted.
Kernels that only read and write get {memory:.0%} of the memory's bandwidth, messages {payload:.0%} of a link's.

An honest word on how this came about: the formulas were finished with these tables in sight. They showed three faults, which were put right for every plan: what interleaved
pipelines have on a rank, what FSDP gathers twice, and how large the messages of tensor and context parallelism are. Attention is counted whole, as everywhere in this repository
(PaLM's convention); counted by the half that a causal mask leaves, at the same share of the peak, long contexts came out up to 2.2 times too fast, so that was not kept. None of the shares
above was changed for the errors below. So the errors say how well stated hardware explains speed, and are no promise for a machine that nobody has measured: for that, fit the model to
trials (`cluster/experiments/cost_predictor.py`).

Median error of the {count} rows that count: **{median:.1%}**; worst **{worst:+.1%}** ({name}).

| source | rows | median error | worst |
|---|---|---|---|
{summary}

The full text of Li et al., PyTorch Distributed (VLDB 2020, arXiv 2006.15704), with its figures for 1 to 256 GPUs, could not be read where this page was written; its
abstract says "near-linear scalability using 256 GPUs". PyTorch's own benchmark of the same code, and DLPerf's of ResNet-50 and BERT, stand in its place.
"""


def page(compared: Sequence[ComparedStep]) -> str:
    counted = [each for each in compared if not each.row.calibrates]
    worst = worst_of(counted)
    introduction = INTRODUCTION.format(
        tensor=SHARE_OF_PEAK["bf16"],
        plain=SHARE_OF_PEAK["fp32"],
        memory=SHARE_OF_MEMORY,
        payload=PAYLOAD,
        count=len(counted),
        median=median_error(counted),
        worst=worst.error,
        name=f"{worst.row.source.name}: {worst.row.row}",
        summary="\n".join(_summary(source, [each for each in counted if each.row.source is source]) for source in SOURCES),
    )
    sections = (section(source, [each for each in compared if each.row.source is source]) for source in SOURCES)
    return "\n".join([introduction, *sections, claims_section(), catalogue_section()])


def worst_of(compared: Sequence[ComparedStep]) -> ComparedStep:
    return max(compared, key=lambda each: abs(each.error))


def median_error(compared: Iterable[ComparedStep]) -> float:
    return statistics.median(abs(each.error) for each in compared)


def _summary(source: PublishedSource, compared: Sequence[ComparedStep]) -> str:
    return f"| {source.name} | {len(compared)} | {median_error(compared):.1%} | {worst_of(compared).error:+.1%} |"


def section(source: PublishedSource, compared: Sequence[ComparedStep]) -> str:
    header = f"""## {source.name}

{source.where}. Machines: {source.platform.words}. {source.says}

| row | devices | plan | published {source.unit} a device | predicted | error | of the predicted step |
|---|---|---|---|---|---|---|"""
    worst = worst_of(compared)
    return "\n".join(
        [
            header,
            *map(_row, compared),
            "",
            f"The worst row, {worst.row.row} on {worst.row.degrees.world_size}: {explanation(worst.row)}",
            "",
        ]
    )


def _row(each: ComparedStep) -> str:
    row = each.row
    error = "(calibrates)" if row.calibrates else f"{each.error:+.1%}"
    return f"| {row.row} | {row.degrees.world_size} | {row.model}, {_plan(row)} | {_rate(row.rate)} | {_rate(each.rate)} | {error} | {_split(each)} |"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.4g}"


def _plan(row: PublishedStep) -> str:
    names = {"replicate": "replicas", "shard": "FSDP", "tensor": "TP", "pipeline": "PP", "context": "CP"}
    axes = [f"{names[axis]} {size}" for axis, size in row.degrees.sizes.items()]
    context = f" x {row.context:,} tokens" if row.context else ""
    return ", ".join([*(axes or ["single"]), f"{row.samples}{context} a data rank"])


def _split(each: ComparedStep) -> str:
    seconds = each.prediction.seconds
    shares = {name: part / seconds for name, part in each.prediction.split.items()}
    return ", ".join(
        f"{name.replace('communication, ', '')} {share:.0%}"
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
        if share >= 0.005
    )


def explanation(row: PublishedStep) -> str:
    """Return why a row is off, as far as that is known."""
    if row.source is DLPERF_RESNET and row.precision == "fp16":
        return (
            "convolutions in fp16 on a V100 get less of the tensor cores than the matrix products of transformers do: the source's log says memory_format nchw, which costs "
            "a change of layout before and after each of them, and its images are decoded on the CPU, at 23,000 a second on 32 devices"
        )
    if row.degrees.context > 2:
        return (
            "the model counts attention over the whole sequence at the rate of other products and hides no part of ring attention; with a long context attention is nearly "
            "all of the step, so its own rate decides"
        )
    if row.degrees.pipeline > 1:
        return "the source does not state its micro-batches; with more of them than assumed the pipeline idles less"
    if row.source is PYTORCH_DDP:
        return "DDP itself costs 3 %, which the model does not have: on one device the source gives 319 images/s with it and 329 without"
    if row.precision == "fp32":
        return (
            "plain units reach a larger share of their peak in large matrix products than in the convolutions that the share is taken from"
        )
    if row.compiled and not row.float8:
        return "the share of the peak is that of a mean large model; compiled, this one reaches more of it"
    return "no reason is known beyond the one share of a peak that stands for all products"


def claims_section() -> str:
    header = """## What other frameworks print

Two editions of a multi-GPU framework's README print scaling tables ("linear scaling to 64 GPUs", vision to 256, language models to 64) without naming devices, links or
batches. Only the numbers below were known to whoever wrote this page. Predicted are the same numbers of devices on two kinds of machines, ResNet-50 with 64 images a device and
Llama 3.1 8B with 2 x 8,192 tokens. Then: what would have to be true.

| where | printed | machines | predicted | what would have to be true |
|---|---|---|---|---|"""
    rows = [_claim(claim, number) for claim in CLAIMS for number in range(len(SETTINGS))]
    verdict = """
Read together: the rates of one device are possible on any card of the last eight years, and say little. The efficiencies of replicas are those of networks several times slower
than is usual beside these cards, or of communication that does not overlap; the predictions do not know stragglers, congestion or input, which make real ones lower (DLPerf's
ResNet-50 above: 93 % on 32, predicted 100 %). 63 % of ideal speed with a communication overhead of 28.5 %, as the second edition has it for 256 devices, leaves 8.5 % of each step that is
neither computing nor communicating. A table without its hardware can be neither predicted nor refuted.
"""
    return "\n".join([header, *rows, verdict])


def _claim(claim: Claim, number: int) -> str:
    setting = SETTINGS[number]
    machines = f"{setting.platform.words}, {setting.precision}"
    if claim.rate is not None:
        rate, share = predicted_rate(claim, setting, 1), needed_share_of_peak(claim, setting)
        return f"| {claim.where} | {claim.what} | {machines} | {rate:,.0f} images/s | products at {share:.1%} of the peak |"
    predicted = predicted_efficiency(claim, setting)
    needed = [_network(needed_network(claim, setting, overlaps=overlaps)) for overlaps in (True, False)]
    stated = setting.platform.machines(claim.devices, 1.0).between.bytes_per_second / GIGABIT
    words = f"{needed[0]} (here {stated:,.0f}); where nothing overlaps, {needed[1]}"
    fits = "" if compare(row_of(claim, setting, claim.base)).prediction.fits else f"; {claim.model} does not fit on {claim.base}"
    return f"| {claim.where} | {claim.what} | {machines} | {predicted:.0%} of ideal{fits} | {words} |"


def _network(needed: float | None) -> str:
    return "no bandwidth would do: latency alone costs more" if needed is None else f"{needed / GIGABIT:,.0f} Gbit/s a machine"


def catalogue_section() -> str:
    return "\n".join(["## The catalogue", "", *_devices(), "", *_links(), ""])


def _devices() -> Iterator[str]:
    yield "| device | memory, GB | memory bandwidth, TB/s | dense peaks, TFLOP/s | link | source |"
    yield "|---|---|---|---|---|---|"
    for each in DEVICES:
        peaks = ((precision, each.peak(precision)) for precision in SHARE_OF_PEAK)
        rates = ", ".join(f"{precision} {peak.flops / TERA:g}" for precision, peak in peaks if peak)
        bandwidth = each.memory_bytes_per_second / TERA
        yield f"| {each.name} | {each.memory_bytes / GIGA:.0f} | {bandwidth:g} | {rates} | {each.link} | {each.source} |"


def _links() -> Iterator[str]:
    yield "| link | GB/s, one direction | latency of a step, us | source |"
    yield "|---|---|---|---|"
    for each in LINKS:
        yield f"| {each.name} | {each.bytes_per_second / GIGA:g} | {1e6 * each.latency_seconds:.2g} | {each.source} |"
