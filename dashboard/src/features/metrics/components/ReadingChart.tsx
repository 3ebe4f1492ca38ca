import { useComputedColorScheme } from "@mantine/core";
import type uPlot from "uplot";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Keyed } from "@/components/ui/StackedBar";
import { clock, count, dateTime, MISSING } from "@/lib/format";
import { seriesToken } from "@/lib/series";
import { baseOptions, readPalette } from "../plot";
import { readingData, readingSentence, readingSeries, readingTitle, shownRange, type ReadingLine } from "../readings";
import { withoutUnit, type Unit } from "../units";
import classes from "./Metrics.module.css";
import { Plot } from "./Plot";

interface Props {
  metric: string;
  unit: Unit;
  lines: readonly ReadingLine[];
  axis: "time" | "step";
  asTable: boolean;
  /** Changes with the data. */
  drawn: string;
}

const HEIGHT = 220;
const DAY_SECONDS = 86_400;

/** Readings of cards or of a node: the mean of each bucket in a band from its least to its most. */
export function ReadingChart({ metric, unit, lines, axis, asTable, drawn }: Props) {
  const scheme = useComputedColorScheme();
  const sentence = readingSentence(lines, unit, axis);
  const options = (root: HTMLElement): Omit<uPlot.Options, "width" | "height"> => {
    const palette = readPalette(root);
    const base = baseOptions(palette, { log: false, units: [unit], x: () => shownRange(lines, axis) });
    const [x, y] = base.axes!;
    return {
      ...base,
      padding: [10, 26, 0, 0], // half of the last time stands out on the right
      cursor: { ...base.cursor, drag: { x: false, y: false }, sync: { key: `paceline-${axis}` } },
      axes: [axis === "step" ? x! : { ...x!, label: "time", values: (_, ticks) => timesOf(ticks) }, y!],
      ...readingSeries(lines, palette),
    };
  };
  return (
    <>
      <span className={classes.legend}>
        {lines.map(({ name }, index) => (
          <Keyed key={name} color={seriesToken(index)}>
            {name}
          </Keyed>
        ))}
      </span>
      {asTable ? (
        <ReadingTable metric={metric} unit={unit} lines={lines} axis={axis} />
      ) : (
        <Plot
          structure={[metric, axis, scheme, drawn].join("|")}
          height={HEIGHT}
          build={(root) => ({ options: options(root) })}
          data={() => readingData(lines)}
          onZoom={() => {}}
          title={readingTitle(metric)}
          sentence={sentence}
        />
      )}
      <p className={classes.summary}>{sentence}</p>
    </>
  );
}

/** Times of day; with seconds where minutes would say the same twice. */
function timesOf(ticks: readonly number[]): string[] {
  const whole = ticks.map((tick) => clock(tick * 1000));
  const minutes = whole.map((time) => time.slice(0, 5));
  return new Set(minutes).size === minutes.length ? minutes : whole;
}

interface Row {
  x: number;
  values: readonly (number | undefined)[];
}

function ReadingTable({ metric, unit, lines, axis }: Pick<Props, "metric" | "unit" | "lines" | "axis">) {
  const columns = lines.map(({ x, mean }) => new Map(x.map((at, index) => [at, mean[index]!])));
  const all = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => b - a);
  const long = all.length > 0 && all[0]! - all.at(-1)! > DAY_SECONDS / 2;
  const written = (x: number) => (axis === "step" ? count(x) : long ? dateTime(x * 1000) : clock(x * 1000));
  const shown: Column<Row>[] = [
    {
      id: "x",
      header: axis === "step" ? "Step" : "Time",
      cell: ({ x }) => written(x),
      value: ({ x }) => x,
      numeric: true,
      width: 160,
    },
    ...lines.map(({ name }, index) => ({
      id: name,
      header: name,
      cell: ({ values }: Row) => {
        const value = values[index];
        return value === undefined || Number.isNaN(value) ? MISSING : withoutUnit(value, unit);
      },
      numeric: true,
    })),
  ];
  return (
    <DataTable
      label={`${readingTitle(metric)} as a table`}
      rows={all.map((x) => ({ x, values: columns.map((column) => column.get(x)) }))}
      columns={shown}
      rowId={({ x }) => String(x)}
    />
  );
}
