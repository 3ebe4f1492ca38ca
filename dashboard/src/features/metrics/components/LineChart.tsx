import { useComputedColorScheme } from "@mantine/core";
import { useInViewport } from "@mantine/hooks";
import type uPlot from "uplot";
import { useState, type ReactNode } from "react";
import { csvOf } from "../exports";
import { labelsOf, stepsBetween, undefinedPlaces, type DrawSettings, type Line } from "../lines";
import type { Mark } from "../marks";
import {
  baseOptions,
  drawBars,
  drawUndefined,
  extremeBars,
  lineData,
  lineSeries,
  placeableRange,
  readPalette,
  structureOf,
  unitsOf,
  wholeSteps,
  type Range,
} from "../plot";
import type { StepRange } from "../stepRange";
import type { MetricsStore } from "../store";
import { summarize, tellUnplaced } from "../summary";
import { besideTitle } from "../units";
import { useExactSteps } from "../useExactSteps";
import { ChartFrame } from "./ChartFrame";
import { ChartLegend } from "./ChartLegend";
import { Plot, type Marking } from "./Plot";

interface Props {
  title: string;
  lines: readonly Line[];
  /** The lines as they are now: a chart is drawn more often than its page. */
  read(): readonly Line[];
  settings: DrawSettings;
  /** Of the steps, as it is now; null: all of them. */
  range(): StepRange | null;
  store?: Pick<MetricsStore, "subscribe">;
  marking?: Marking;
  /** What else the drawing depends on: it is built anew when this changes. */
  version?: string;
  /** The sentence tells every line, not only the first. */
  tellAll?: boolean;
  onZoom(range: StepRange | null): void;
  table(lines: readonly Line[]): ReactNode;
  /** Further entries of the menu. */
  children?: ReactNode;
}

/** Without it everything counts as seen. */
const CAN_BE_SEEN = typeof IntersectionObserver !== "undefined";

/** Lines over the chosen axis. What is hidden, and which values are shown, is this chart's own. */
export function LineChart(props: Props) {
  const { title, lines, read, settings, range, store, marking, version = "", tellAll = false, onZoom, table } = props;
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [chosenValues, setValues] = useState<Range | null>(null);
  const values = placeableRange(chosenValues, settings.log);
  const [cursor, setCursor] = useState<number | null>(null);
  const scheme = useComputedColorScheme();
  const shownOf = (all: readonly Line[]) => all.filter(({ label }) => !hidden.has(label));
  const shown = shownOf(lines);
  const unplaced = settings.log ? tellUnplaced(shown) : null;
  const { ref: seenRef, inViewport } = useInViewport<HTMLParagraphElement>();
  const exact = useExactSteps(shown, tellAll, inViewport || !CAN_BE_SEEN);
  const sentence = [summarize(shown, tellAll, exact), ...(unplaced ? [unplaced] : [])].join(" ");
  const units = unitsOf(lines);
  const zoom = (chosen: Range | null) => {
    if (chosen === null) return onZoom(null);
    const { from, to } = chosen;
    const steps = settings.axis === "step" ? wholeSteps(chosen) : stepsBetween(read(), from, to);
    if (steps) onZoom(steps);
  };
  const build = (root: HTMLElement) => {
    const palette = readPalette(root);
    const { log, axis } = settings;
    const x = axis === "step" ? range : undefined;
    return {
      options: {
        ...baseOptions(palette, { log, units: unitsOf(shown), axis, x, y: values }),
        ...lineSeries(shown, palette, settings),
      },
      onDraw: (plot: uPlot) => {
        const now = shownOf(read());
        drawBars(plot, extremeBars(plot, now, palette));
        drawUndefined(plot, undefinedPlaces(now), palette);
      },
    };
  };
  return (
    <ChartFrame
      title={title}
      unit={units.map(besideTitle).filter(Boolean).join(", ")}
      legend={
        <ChartLegend
          lines={lines}
          hidden={hidden}
          onToggle={(label) => setHidden(toggled(hidden, label))}
          cursor={cursor}
          settings={settings}
        />
      }
      entries={labelsOf(shown).map((label) => shown.find((line) => line.label === label)!)}
      sentence={sentence}
      sentenceRef={seenRef}
      table={() => table(shown)}
      csv={() => csvOf(shownOf(read()))}
      bars={(plot, palette) => extremeBars(plot, shownOf(read()), palette)}
      values={values}
      onValues={setValues}
      log={settings.log}
      plot={(height, drawn) => (
        <Plot
          store={store}
          structure={[structureOf(shown), scheme, JSON.stringify([settings, values]), version].join("|")}
          height={height}
          build={build}
          data={() => lineData(shownOf(read()), settings)}
          marking={marking}
          placeOf={(mark) => placeOfMark(mark, settings, lines)}
          onZoom={zoom}
          onValueZoom={setValues}
          onCursor={setCursor}
          title={title}
          sentence={sentence}
          drawn={drawn}
        />
      )}
    >
      {props.children}
    </ChartFrame>
  );
}

function toggled(hidden: ReadonlySet<string>, label: string): ReadonlySet<string> {
  const next = new Set(hidden);
  if (!next.delete(label)) next.add(label);
  return next;
}

/** A mark is at its step, or, on another axis, where its generation begins or ends. */
function placeOfMark(mark: Mark, { axis }: DrawSettings, lines: readonly Line[]): number {
  if (axis === "step") return mark.step;
  const line = lines.find(({ generation }) => generation === mark.generation);
  return (mark.ends ? line?.x.at(-1) : line?.x[0]) ?? NaN;
}
