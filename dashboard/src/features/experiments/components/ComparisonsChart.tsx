import { SegmentedControl, Select } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { DataTable, type Column } from "@/components/ui/DataTable";
import type { Analysis } from "@/lib/types";
import { Chart, XAxis, type Area } from "../charts/Chart";
import { extentOf, logarithmic, type Scale } from "../charts/scale";
import {
  changeOf,
  COMPARED_BY,
  comparedFigures,
  comparisons,
  comparisonsSentence,
  probabilityOf,
  type ComparedBy,
  type Comparison,
} from "../comparisons";
import { titleOf } from "../figures";
import classes from "./Charts.module.css";
import { Figure } from "./Figure";

export interface ComparisonsView {
  by: ComparedBy;
  figure?: string;
}

interface Props {
  analysis: Analysis;
  metric: string;
  view: ComparisonsView;
  onView(view: ComparisonsView): void;
}

const ROW = 36;
/** A label that is wider than its row takes a second line. */
const LINE = 15;
const CHARACTER_PX = 6.6;
const MOST_ROWS = 24;
const FOOT = 44;
const NAMES: Record<ComparedBy, string> = { values: "Values", pairs: "Pairs" };

/** What each value changes in one figure: filled where a test calls it a difference, hollow where none does. */
export function ComparisonsChart({ analysis, metric, view, onView }: Props) {
  const all = comparisons(analysis, view.by);
  const figures = comparedFigures(all);
  const figure = figures.find(({ name }) => name === view.figure) ?? figures[0];
  if (!figure)
    return (
      <Figure
        title="Differences"
        sentence=""
        table={null}
        empty="A comparison needs two configurations with results that differ in one value only; a test of it, four repeats of each."
      >
        {null}
      </Figure>
    );
  const rows = all.filter((one) => one.figure === figure.name);
  const shown = rows.filter(({ smallest }) => smallest > 0).slice(0, MOST_ROWS);
  const rest = rows.length - shown.length;
  const sentence = comparisonsSentence(rows) + (rest > 0 ? ` In the table only: ${rest} more.` : "");
  return (
    <Figure
      title="Differences"
      controls={
        <SegmentedControl
          size="xs"
          aria-label="Compared by"
          data={COMPARED_BY.map((name) => ({ value: name, label: NAMES[name] }))}
          value={view.by}
          onChange={(by) => onView({ ...view, by: by as ComparedBy })}
        />
      }
      tools={
        <Select
          aria-label="Figure of the differences"
          w={200}
          allowDeselect={false}
          data={figures.map((one) => ({ value: one.name, label: titleOf(one, metric) }))}
          value={figure.name}
          onChange={(name) => onView({ ...view, figure: name ?? undefined })}
        />
      }
      legend={<Legend />}
      sentence={sentence}
      table={<DataTable label="Differences values" rows={rows} columns={COLUMNS} rowId={({ id }) => id} />}
    >
      <Drawing label={`Differences: ${titleOf(figure, metric)}, ${sentence}`} rows={shown} />
    </Figure>
  );
}

const COLUMNS: readonly Column<Comparison>[] = [
  { id: "label", header: "Comparison", cell: ({ label }) => label, value: ({ label }) => label },
  { id: "change", header: "Change", cell: ({ ratio }) => changeOf(ratio), value: ({ ratio }) => ratio, numeric: true },
  { id: "p", header: "Test", cell: ({ p }) => probabilityOf(p), value: ({ p }) => p, numeric: true },
  {
    id: "verdict",
    header: "Difference",
    cell: ({ isDifference, p }) => (isDifference ? "yes" : p === null ? "too few repeats" : "not shown"),
    value: ({ isDifference, p }) => (isDifference ? 0 : p === null ? 2 : 1),
  },
  {
    id: "range",
    header: "Over the pairs",
    cell: ({ smallest, largest, pairs }) =>
      pairs > 1 ? `${changeOf(smallest)} to ${changeOf(largest)} in ${pairs}` : "1 pair",
  },
];

function Legend() {
  return (
    <>
      <span className={classes.key}>
        <svg width="10" height="10" aria-hidden style={{ color: "var(--series-1)" }}>
          <circle className={classes.point} cx="5" cy="5" r="4" />
        </svg>
        a difference
      </span>
      <span className={classes.key}>
        <svg width="10" height="10" aria-hidden style={{ color: "var(--neutral)" }}>
          <circle className={classes.hollow} cx="5" cy="5" r="4" />
        </svg>
        not shown to be one
      </span>
    </>
  );
}

/** As high as its labels need at its width. */
function Drawing({ label, rows }: { label: string; rows: readonly Comparison[] }) {
  const { ref, width } = useElementSize();
  const fitting = Math.floor(((width || Infinity) - 24) / CHARACTER_PX);
  const row = rows.some((each) => each.label.length > fitting) ? ROW + LINE : ROW;
  return (
    <div ref={ref}>
      <Chart label={label} height={rows.length * row + FOOT}>
        {(drawn) => <Drawn rows={rows} width={drawn} height={row} />}
      </Chart>
    </div>
  );
}

/** A label in the lines that it is drawn as, at most two. */
export function labelLines(label: string, fitting: number): string[] {
  if (label.length <= fitting) return [label];
  const at = label.lastIndexOf(" ", fitting);
  const end = at > fitting / 2 ? at : fitting;
  const rest = label.slice(end).trim();
  return [label.slice(0, end), rest.length > fitting ? `${rest.slice(0, fitting - 1)}…` : rest];
}

function Drawn({ rows, width, height }: { rows: readonly Comparison[]; width: number; height: number }) {
  const area: Area = { left: 12, right: width - 14, top: 2, bottom: rows.length * height + 2 };
  const fitting = Math.floor((width - 24) / CHARACTER_PX);
  const [low, high] = extentOf([1, ...rows.flatMap(({ smallest, largest }) => [smallest, largest])])!;
  const x = logarithmic(low, high, area.left + 8, area.right - VALUE_PX);
  return (
    <>
      <XAxis scale={x} area={area} write={changeOf} title="change, on a log scale" />
      <line className={classes.ideal} x1={x.place(1)} x2={x.place(1)} y1={area.top} y2={area.bottom} />
      {rows.map((row, index) => (
        <Row
          key={row.id}
          row={row}
          x={x}
          top={area.top + index * height}
          right={area.right}
          lines={labelLines(row.label, fitting)}
          below={height - ROW}
        />
      ))}
    </>
  );
}

/** For the change and the p-value at the end of each row. */
const VALUE_PX = 116;

interface RowProps {
  row: Comparison;
  x: Scale;
  top: number;
  right: number;
  lines: readonly string[];
  /** How much further down the interval is drawn. */
  below: number;
}

function Row({ row: { ratio, smallest, largest, p, isDifference, text }, x, top, right, lines, below }: RowProps) {
  return (
    <g transform={`translate(0 ${top})`} style={{ color: `var(${isDifference ? "--series-1" : "--neutral"})` }}>
      <title>{text}</title>
      {lines.map((line, index) => (
        <text key={index} className={classes.name} x={12} y={12 + index * LINE}>
          {line}
        </text>
      ))}
      <path className={classes.interval} d={`M${x.place(smallest)} ${23 + below}H${x.place(largest)}`} />
      <circle className={isDifference ? classes.point : classes.hollow} cx={x.place(ratio)} cy={23 + below} r={4} />
      <text className={classes.value} x={right} y={27 + below} textAnchor="end">
        {changeOf(ratio)}, {probabilityOf(p)}
      </text>
    </g>
  );
}
