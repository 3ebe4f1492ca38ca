/** Charts that the people of a project have put together: kept by the coordinator, and seen by everybody. Pure. */
import type { Chart } from "@/lib/types";
import type { Axis } from "./axes";
import { unitOf, type ChartSpec } from "./catalog";
import type { DrawSettings } from "./lines";
import type { Unit } from "./units";

export interface OwnChart {
  /** Null: it is not saved yet. */
  readonly id: string | null;
  readonly title: string;
  readonly names: readonly string[];
  /** Ids of other jobs that are drawn beside the page's own. */
  readonly runs: readonly string[];
  /** Null: as the page says. */
  readonly axis: Axis | null;
  readonly scale: "linear" | "log" | null;
  readonly revision: number;
  readonly updatedBy: string;
}

export const NEW_CHART: OwnChart = {
  id: null,
  title: "",
  names: [],
  runs: [],
  axis: null,
  scale: null,
  revision: 0,
  updatedBy: "",
};

export function ownChartOf({ id, name, definition, revision, updated_by: updatedBy }: Chart): OwnChart {
  const { metrics: names, runs, axis, scale } = definition;
  return { id, title: name, names, runs, axis, scale, revision, updatedBy };
}

export function definitionOf({ names, runs, axis, scale }: OwnChart) {
  return { metrics: [...names], runs: [...runs], axis, scale };
}

/** How an own chart is drawn: by its own axis and scale, where it has them and the run allows the axis. */
export function drawnBy({ axis, scale }: OwnChart, settings: DrawSettings, allowed: readonly Axis[]): DrawSettings {
  return {
    ...settings,
    axis: axis !== null && allowed.includes(axis) ? axis : settings.axis,
    log: scale === null ? settings.log : scale === "log",
  };
}

/** Ids in the order in which one of those that are `shown` is moved past its neighbour there, the next one or the one before. */
export function movedBy(ids: readonly string[], shown: readonly string[], id: string, places: 1 | -1): string[] {
  const at = shown.indexOf(id);
  const neighbour = at < 0 ? undefined : shown[at + places];
  if (neighbour === undefined) return [...ids];
  const rest = ids.filter((one) => one !== id);
  return rest.toSpliced(rest.indexOf(neighbour) + (places > 0 ? 1 : 0), 0, id);
}

/** The charts with titles that nothing else on the page has, as landmarks and buttons are named by them: "Loss", "Loss (2)". */
export function toldApart(charts: readonly OwnChart[], taken: readonly string[] = []): OwnChart[] {
  const used = new Set(taken);
  return charts.map((chart) => {
    let title = chart.title;
    for (let number = 2; used.has(title); number += 1) title = `${chart.title} (${number})`;
    used.add(title);
    return { ...chart, title };
  });
}

export function specOf({ id, title, names }: OwnChart, lossUnit: Unit): ChartSpec {
  const units = Object.fromEntries(names.map((name) => [name, unitOf(name, lossUnit)]));
  return { id: `own/${id}`, title, names, unit: "", units };
}

/** What an earlier version kept in this browser. */
export interface BrowserChart {
  readonly id: string;
  readonly title: string;
  readonly names: readonly string[];
}

export const browserKey = (project: string) => `paceline-charts/${project}`;

/** What was stored; anything malformed is dropped. */
export function parseCharts(stored: string | undefined): BrowserChart[] {
  try {
    const found: unknown = JSON.parse(stored ?? "[]");
    return Array.isArray(found) ? found.filter(isBrowserChart) : [];
  } catch {
    return []; // another program's text under this key is no chart
  }
}

function isBrowserChart(value: unknown): value is BrowserChart {
  const { id, title, names } = (value ?? {}) as Record<string, unknown>;
  const texts = (list: unknown) =>
    Array.isArray(list) && list.length > 0 && list.every((one) => typeof one === "string");
  return typeof id === "string" && typeof title === "string" && texts(names);
}
