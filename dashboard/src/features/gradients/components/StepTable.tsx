import { useState } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { StateBadge } from "@/components/ui/StateBadge";
import { MISSING, count, measured, percent } from "@/lib/format";
import type { ParameterGradients, StepGradients } from "@/lib/types";
import { binsInUse, normsOf, notFinite, sentenceOf, troublesOf, zeroSharesOf, type Range } from "../gradients";
import { snapshotUrl } from "../api/gradients";
import { Histogram } from "./Histogram";
import { ParameterDetails } from "./ParameterDetails";
import classes from "./Gradients.module.css";

/** The gradients of one step, a row for each parameter; the chosen one is spread out below. */
export function StepTable({ found }: { found: StepGradients }) {
  const [chosen, setChosen] = useState<string | null>(null);
  const bins = binsInUse(found.parameters);
  const parameter = found.parameters.find(({ name }) => name === chosen);
  const missing = found.ranks.filter(({ state }) => state !== "ready");
  const snapshots = found.ranks.flatMap(({ rank, snapshot_id: id }) => (id ? [{ rank, id }] : []));
  return (
    <>
      <p className={classes.summary}>{sentenceOf(found)}</p>
      {missing.length > 0 && (
        <ul className={classes.missing} aria-label="Ranks without a record">
          {missing.map(({ rank, state, error }) => (
            <li key={rank}>{`Rank ${rank}: ${error ?? `its record is ${state}`}`}</li>
          ))}
        </ul>
      )}
      <DataTable
        label="Gradients by parameter"
        rows={found.parameters}
        columns={columnsOf(found, bins, (name) => setChosen(name === chosen ? null : name))}
        rowId={({ name }) => name}
        rowProps={({ name }) => ({ "data-selected": name === chosen })}
      />
      {parameter && <ParameterDetails key={parameter.name} parameter={parameter} edges={found.edges} bins={bins} />}
      {snapshots.length > 0 && (
        <p className={classes.summary}>
          Snapshots, for torch.load:{" "}
          {snapshots.map(({ rank, id }) => (
            <a key={rank} className={classes.snapshot} href={snapshotUrl(found.job_id, id)} download>
              {`rank ${rank}`}
            </a>
          ))}
        </p>
      )}
    </>
  );
}

function columnsOf(
  { edges }: StepGradients,
  bins: readonly [number, number],
  choose: (name: string) => void,
): readonly Column<ParameterGradients>[] {
  return [
    {
      id: "name",
      header: "Parameter",
      cell: (row) => (
        <>
          <button type="button" className={classes.choose} onClick={() => choose(row.name)}>
            {row.name}
          </button>
          {row.sharded && <span className="muted"> shards</span>}
          <Troubles parameter={row} />
        </>
      ),
    },
    {
      id: "histogram",
      header: "− to +",
      cell: ({ name, histogram }) => <Histogram {...{ name, histogram, edges, bins }} />,
      width: 160,
    },
    {
      id: "norm",
      header: "Norm",
      cell: (row) => spoken(normsOf(row), measured),
      value: (row) => normsOf(row)?.most ?? Infinity,
      numeric: true,
    },
    {
      id: "zeros",
      header: "Zeros",
      cell: (row) => spoken(zeroSharesOf(row), (share) => percent(share, 1)),
      value: (row) => zeroSharesOf(row)?.most ?? 0,
      numeric: true,
    },
    { id: "notFinite", header: "Not finite", cell: (row) => count(notFinite(row)), value: notFinite, numeric: true },
  ];
}

function Troubles({ parameter }: { parameter: ParameterGradients }) {
  const troubles = troublesOf(parameter);
  if (troubles.length === 0) return null;
  return (
    <div className={classes.troubles}>
      {troubles.map(({ tone, text }) => (
        <StateBadge key={text} state={tone} tone={tone}>
          {text}
        </StateBadge>
      ))}
    </div>
  );
}

/** One number where ranks agree to the shown digits, else the least and the most. */
function spoken(range: Range | null, format: (value: number) => string): string {
  if (range === null) return MISSING;
  const [least, most] = [format(range.least), format(range.most)];
  return least === most ? least : `${least} to ${most}`;
}
