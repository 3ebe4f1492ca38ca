/**
 * The curves of one job in memory: a snapshot plus the records that the stream brings after it.
 *
 * Not React state: records arrive many times a second, and charts redraw from here once per animation frame.
 */
import type { JobMetrics, MetricRecord } from "@/lib/types";
import { append, emptySeries, fromCurve, type Series } from "./curves";
import { extentOf, within, type StepRange } from "./stepRange";

export class MetricsStore {
  private readonly byName = new Map<string, Series[]>();
  private readonly listeners = new Set<() => void>();
  private newest: MetricRecord | null = null;
  version = 0;
  receivedAt = Date.now();

  constructor(
    snapshot: JobMetrics,
    /** What was asked for. */
    readonly range: StepRange | null,
    private readonly ranks: readonly number[],
  ) {
    for (const curve of snapshot.curves) this.insert(fromCurve(curve));
  }

  /** The newest record of rank 0, for the page's header. */
  get latest(): MetricRecord | null {
    return this.newest;
  }

  get names(): string[] {
    return [...this.byName.keys()];
  }

  /** From the first to the last step that is loaded. */
  get extent(): StepRange | null {
    return extentOf([...this.byName.values()].flat());
  }

  /** The part of the asked range that charts show: as far as the run has come. */
  get shownRange(): StepRange | null {
    return within(this.range, this.extent);
  }

  /** Every generation's series of one metric, oldest generation first. */
  series(name: string, rank = 0): readonly Series[] {
    return (this.byName.get(name) ?? []).filter((one) => one.rank === rank);
  }

  apply(record: MetricRecord): void {
    this.receivedAt = Date.now();
    if (record.rank === 0) this.newest = record;
    if (!this.ranks.includes(record.rank) || this.outside(record.step)) return this.changed();
    for (const [name, value] of Object.entries(record.values)) {
      append(this.open(name, record.rank, record.generation), record.step, value, record.time);
    }
    this.changed();
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private changed(): void {
    this.version += 1;
    for (const listener of this.listeners) listener();
  }

  private outside(step: number): boolean {
    return this.range !== null && (step < this.range.from || step > this.range.to);
  }

  private open(name: string, rank: number, generation: number): Series {
    const known = this.byName.get(name)?.filter((one) => one.rank === rank) ?? [];
    const found = known.find((one) => one.generation === generation);
    return found ?? this.insert(emptySeries(name, rank, generation, known.at(-1)?.bucketSteps ?? 1));
  }

  private insert(series: Series): Series {
    const list = [...(this.byName.get(series.name) ?? []), series];
    list.sort((a, b) => a.generation - b.generation);
    this.byName.set(series.name, list);
    return series;
  }
}
