/** What the ranks of a job are compared by: names, labels, and which end of the values is the bad one. The one list. Pure. */
import { title } from "@/lib/format";
import { CURVE_NAMES, ownNames } from "./catalog";
import { isRate } from "./lines";
import { CARD_READINGS, readingTitle, type CardReading } from "./readings";

/** Which end of the values is the bad one: a slow card has a low clock. */
export type Worst = "highest" | "lowest";

export interface Measure {
  readonly name: string;
  readonly label: string;
  readonly worst: Worst;
}

export const BUSY = "busy_seconds";

/** Of ranks that wait for each other all steps take as long: the time without waiting tells which one is slow. */
const OF_RANKS: readonly Measure[] = [
  { name: BUSY, label: "Busy time (step without waiting)", worst: "highest" },
  { name: "step_seconds", label: "Step time", worst: "highest" },
  { name: "data_seconds", label: "Data", worst: "highest" },
  { name: "forward_seconds", label: "Forward", worst: "highest" },
  { name: "backward_seconds", label: "Backward", worst: "highest" },
  { name: "communication_seconds", label: "Exposed communication", worst: "highest" },
  { name: "optimizer_seconds", label: "Optimizer", worst: "highest" },
  { name: "memory_bytes", label: "Memory", worst: "highest" },
  { name: "peak_memory_bytes", label: "Peak memory", worst: "highest" },
];

/** A reading of each rank's own card, among the metrics that ranks report. */
export const CARD_PREFIX = "card/";

/** A card whose work, clock or link is slower than that of others holds them up. */
const WORST_OF_CARD: Readonly<Record<CardReading, Worst>> = {
  utilization_percent: "lowest",
  memory_used_bytes: "highest",
  power_watts: "lowest",
  temperature_celsius: "highest",
  sm_clock_mhz: "lowest",
  memory_clock_mhz: "lowest",
  throttled_by_power: "highest",
  throttled_by_heat: "highest",
  throttled_otherwise: "highest",
  pcie_sent_bytes_per_second: "lowest",
  pcie_received_bytes_per_second: "lowest",
  nvlink_sent_bytes_per_second: "lowest",
  nvlink_received_bytes_per_second: "lowest",
  ecc_corrected: "highest",
  ecc_uncorrected: "highest",
};

/** Counts of errors only grow: they are shown on the node's page. */
const OF_CARDS: readonly Measure[] = CARD_READINGS.filter((name) => !name.startsWith("ecc_")).map((name) => ({
  name: CARD_PREFIX + name,
  label: `Card: ${readingTitle(name)}`,
  worst: WORST_OF_CARD[name],
}));

/** Names that users give to what is better the more there is of it. */
const GOOD = /(^|[_/.])(throughput|goodput|mfu|utili[sz]ation|accuracy|clock)([_/.]|$)|_per_s(ec)?$/i;

/** The other curves of the page, where ranks may differ too: in bytes sent, in throughput, in a norm that is off. */
const OF_CURVES: readonly Measure[] = CURVE_NAMES.filter(
  (name) => !OF_RANKS.some((measure) => measure.name === name),
).map((name) => ({ name, label: labelOf(name), worst: isRate(name) || GOOD.test(name) ? "lowest" : "highest" }));

function labelOf(name: string): string {
  return name === "mfu" ? "MFU" : title(name.replace(/_seconds$/, ""));
}

const KNOWN = new Map([...OF_RANKS, ...OF_CURVES, ...OF_CARDS].map((measure) => [measure.name, measure]));

/** Of a user's own metric its name tells. */
export function worstOf(name: string): Worst {
  return KNOWN.get(name)?.worst ?? (isRate(name) || GOOD.test(name) ? "lowest" : "highest");
}

/** What a job's ranks can be compared by: parts of a step, memory, what a user's code logs, of a script its loss before that, every other curve, and
 * readings of their cards. */
export function measuresOf(reported: readonly string[], { script, cards }: { script: boolean; cards: boolean }) {
  const own = script && reported.includes("loss") ? ["loss", ...ownNames(reported)] : ownNames(reported);
  return [
    ...OF_RANKS.filter(({ name }) => reported.includes(name === BUSY ? "step_seconds" : name)),
    ...own.map((name): Measure => ({ name, label: name, worst: worstOf(name) })),
    ...OF_CURVES.filter(({ name }) => reported.includes(name) && !own.includes(name)),
    ...(cards && reported.length > 0 ? OF_CARDS : []),
  ];
}
