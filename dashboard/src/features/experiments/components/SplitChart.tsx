import { DataTable, type Column } from "@/components/ui/DataTable";
import { Keyed } from "@/components/ui/StackedBar";
import { percent, shortTime, timeTicks } from "@/lib/format";
import type { Analysis } from "@/lib/types";
import { Chart, XAxis, type Area } from "../charts/Chart";
import { tight, type Scale } from "../charts/scale";
import { colorOf, partNames, partTitle, splitRows, splitSentence, type SplitRow } from "../split";
import classes from "./Charts.module.css";
import { Figure } from "./Figure";

const ROW = 34;
const MOST_ROWS = 24;
const FOOT = 30;

/** Where a step's time goes in each configuration, the fastest first. */
export function SplitChart({ analysis }: { analysis: Analysis }) {
  const rows = splitRows(analysis.configurations).sort((a, b) => a.total - b.total);
  const names = partNames(analysis.configurations);
  const shown = rows.slice(0, MOST_ROWS);
  const rest = rows.length - shown.length;
  const sentence = splitSentence(rows) + (rest > 0 ? ` Drawn: the fastest ${shown.length} of ${rows.length}.` : "");
  return (
    <Figure
      title="Step time split"
      empty={rows.length === 0 ? "No trial has reported where the time of its steps goes." : null}
      legend={names.map((name) => (
        <Keyed key={name} color={colorOf(name)}>
          {partTitle(name)}
        </Keyed>
      ))}
      sentence={sentence}
      table={
        <DataTable
          label="Step time split values"
          rows={rows}
          columns={columnsOf(names)}
          rowId={({ configuration }) => String(configuration)}
        />
      }
    >
      <Chart label={`Step time split: ${sentence}`} height={shown.length * ROW + FOOT + 6}>
        {(width) => <Drawn rows={shown} width={width} />}
      </Chart>
    </Figure>
  );
}

function columnsOf(names: readonly string[]): Column<SplitRow>[] {
  return [
    { id: "label", header: "Configuration", cell: ({ label }) => label, value: ({ label }) => label },
    ...names.map((name, index) => ({
      id: name,
      header: partTitle(name),
      cell: ({ parts, total }: SplitRow) =>
        `${shortTime(parts[index]!.seconds)} (${percent(parts[index]!.seconds / total)})`,
      value: ({ parts }: SplitRow) => parts[index]!.seconds,
      numeric: true,
    })),
    { id: "total", header: "Step", cell: ({ total }) => shortTime(total), value: ({ total }) => total, numeric: true },
  ];
}

function Drawn({ rows, width }: { rows: readonly SplitRow[]; width: number }) {
  const area: Area = { left: 12, right: width - 14, top: 4, bottom: rows.length * ROW + 4 };
  const x = tight(0, Math.max(...rows.map(({ total }) => total)), area.left, area.right - 46, 4);
  const labels = timeTicks(x.ticks);
  return (
    <>
      <XAxis scale={x} area={area} write={(tick) => labels[x.ticks.indexOf(tick)]!} />
      {rows.map((row, index) => (
        <Bar key={row.configuration} row={row} x={x} top={area.top + index * ROW} />
      ))}
    </>
  );
}

function Bar({ row: { label, parts, total }, x, top }: { row: SplitRow; x: Scale; top: number }) {
  let sum = 0;
  return (
    <g transform={`translate(0 ${top})`}>
      <text className={classes.name} x={x.place(0)} y={11}>
        {label}
      </text>
      {parts.map(({ name, seconds, color }) => {
        const start = x.place(sum);
        sum += seconds;
        return (
          <rect
            key={name}
            x={start}
            y={16}
            height={11}
            width={Math.max(0, x.place(sum) - start - 0.75)}
            style={{ fill: `var(${color})` }}
          />
        );
      })}
      <text className={classes.value} x={x.place(total) + 6} y={25}>
        {shortTime(total)}
      </text>
    </g>
  );
}
