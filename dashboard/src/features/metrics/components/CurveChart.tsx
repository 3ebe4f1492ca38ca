import type uPlot from "uplot";
import { useComputedColorScheme } from "@mantine/core";
import { useMemo, useRef, useState } from "react";
import { Panel } from "@/components/ui/Panel";
import { TableToggle } from "@/components/ui/TableToggle";
import { count } from "@/lib/format";
import type { ChartSpec } from "../catalog";
import { smooth, type Series } from "../curves";
import { baseOptions, drawUndefined, lineData, lineSeries, readPalette, structureOf, type DrawSettings } from "../plot";
import type { MetricsStore, StepRange } from "../store";
import { summarize } from "../summary";
import { besideTitle, withoutUnit, type Unit } from "../units";
import { useStoreVersion } from "../useStoreVersion";
import classes from "./Metrics.module.css";
import { CurveTable } from "./CurveTable";
import { Plot, type Marking } from "./Plot";

interface Props {
  chart: ChartSpec;
  store: MetricsStore;
  settings: DrawSettings;
  marking: Marking;
  onZoom(range: StepRange | null): void;
}

const HEIGHT = 210;

export function CurveChart({ chart, store, settings, marking, onZoom }: Props) {
  const [asTable, setAsTable] = useState(false);
  const [cursor, setCursor] = useState<number | null>(null);
  const scheme = useComputedColorScheme();
  useStoreVersion(store);
  const series = chart.names.flatMap((name) => store.series(name));
  const sentence = summarize(chart, series);
  const undefinedAt = useRef<number[]>([]);
  const read = () => {
    const { data, undefinedAt: found } = lineData(
      chart.names.flatMap((name) => store.series(name)),
      settings,
    );
    undefinedAt.current = found;
    return data;
  };
  const build = (root: HTMLElement) => {
    const palette = readPalette(root);
    return {
      options: {
        ...baseOptions(palette, { log: settings.log, unit: chart.unit }, store.range),
        ...lineSeries(series, chart.names, palette, settings.smoothing),
      },
      onDraw: (plot: uPlot) => drawUndefined(plot, undefinedAt.current, palette),
    };
  };
  const structure = [structureOf(series), scheme, settings.log, settings.smoothing].join("|");
  return (
    <Panel
      title={chart.title}
      unit={besideTitle(chart.unit)}
      label={`${chart.title} chart`}
      actions={
        <>
          <Legend chart={chart} series={series} cursor={cursor} settings={settings} />
          <TableToggle pressed={asTable} onChange={setAsTable} what={chart.title} />
        </>
      }
      flush
    >
      {asTable ? (
        <CurveTable title={chart.title} series={series} marks={marking.marks} />
      ) : (
        <Plot
          store={store}
          structure={structure}
          height={HEIGHT}
          build={build}
          data={read}
          marking={marking}
          onZoom={onZoom}
          onCursor={setCursor}
          title={chart.title}
          sentence={sentence}
        />
      )}
      <p className={classes.summary}>{sentence}</p>
    </Panel>
  );
}

interface LegendProps {
  chart: ChartSpec;
  series: readonly Series[];
  cursor: number | null;
  settings: DrawSettings;
}

/** Names in their colours, with the values under the cursor. */
function Legend({ chart, series, cursor, settings }: LegendProps) {
  const shown = chart.names.filter((name) => series.some((one) => one.name === name));
  return (
    <span className={classes.legend}>
      {cursor !== null && <span className="muted">step {count(cursor)}</span>}
      {shown.map((name) => (
        <span key={name} className={classes.key}>
          <span
            className={classes.swatch}
            style={{ background: `var(--series-${chart.names.indexOf(name) + 1})` }}
            aria-hidden
          />
          {(shown.length > 1 || cursor === null) && name}
          {cursor !== null && (
            <CursorValue
              series={series.filter((one) => one.name === name)}
              step={cursor}
              unit={chart.unit}
              settings={settings}
            />
          )}
        </span>
      ))}
    </span>
  );
}

function CursorValue({
  series,
  step,
  unit,
  settings,
}: {
  series: readonly Series[];
  step: number;
  unit: Unit;
  settings: DrawSettings;
}) {
  const text = useMemo(() => {
    for (const one of [...series].reverse()) {
      const at = one.steps.indexOf(step);
      if (at >= 0)
        return withoutUnit(
          (settings.smoothing > 0 ? smooth(one.last.slice(0, at + 1), settings.smoothing) : one.last)[at]!,
          unit,
        );
    }
    return "";
  }, [series, step, unit, settings.smoothing]);
  return <strong>{text}</strong>;
}
