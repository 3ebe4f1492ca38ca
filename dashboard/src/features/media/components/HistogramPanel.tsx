import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Panel, PanelStates } from "@/components/ui/Panel";
import { TableToggle } from "@/components/ui/TableToggle";
import { count, measured, MISSING } from "@/lib/format";
import type { LoggedHistogram, MediaHistograms, MediaKey } from "@/lib/types";
import { histogramsQuery } from "../api/media";
import { histogramWords, ridgesOf, shownRanks, type MediaRun } from "../media";
import { Bars } from "./Bars";
import classes from "./Media.module.css";
import type { KeyPanelProps } from "./MediaBoard";
import { ObjectColumns } from "./ObjectColumns";
import { RidgePlot } from "./RidgePlot";

/** The histograms of a key: that of the step, and those of all steps one behind the other. */
export function HistogramPanel(props: KeyPanelProps) {
  const { shared, step, range, ranks, several } = props;
  const [asTable, setAsTable] = useState(false);
  return (
    <Panel
      title={shared.key}
      label={`${shared.key} histogram`}
      actions={
        <>
          <TableToggle pressed={asTable} onChange={setAsTable} what={shared.key} />
          {props.fold}
        </>
      }
      flush
    >
      <ObjectColumns {...props}>
        {({ histogram }, label) =>
          histogram && (
            <>
              <Bars histogram={histogram} label={label} />
              <p className={classes.caption}>{histogramWords(histogram)}</p>
            </>
          )
        }
      </ObjectColumns>
      <div className={classes.columns}>
        {shared.runs.flatMap(({ run, media }) =>
          shownRanks(media, ranks).map((rank) => (
            <OverSteps key={`${run.id}/${rank}`} {...{ run, media, rank, step, range, several, asTable }} />
          )),
        )}
      </div>
    </Panel>
  );
}

interface OverStepsProps extends Pick<KeyPanelProps, "step" | "range" | "several"> {
  run: MediaRun;
  media: MediaKey;
  rank: number;
  asTable: boolean;
}

function OverSteps({ run, media, rank, step, range, several, asTable }: OverStepsProps) {
  const first = range?.from ?? 0;
  const last = range?.to ?? media.steps.at(-1)!;
  const query = useQuery(histogramsQuery(run.id, { key: media.key, rank, first, last, steps: media.steps.length }));
  const heading = [...(several ? [run.name] : []), ...(media.ranks.length > 1 ? [`rank ${rank}`] : [])].join(", ");
  const label = heading === "" ? media.key : `${media.key}, ${heading}`;
  return (
    <div className={classes.column}>
      {heading !== "" && <h3 className={classes.heading}>{heading} over steps</h3>}
      <PanelStates source={query} what={`the histograms of ${label}`} rows={4}>
        {(found) => (asTable ? <Statistics label={label} found={found} /> : <Ridges {...{ label, found, step }} />)}
      </PanelStates>
    </div>
  );
}

function Ridges({ label, found, step }: { label: string; found: MediaHistograms; step: number }) {
  const drawn = ridgesOf(found);
  if (drawn === null) return <p className={classes.caption}>No finite value in these steps.</p>;
  const chosen =
    found.items.length < found.steps ? ` ${count(found.items.length)} of ${count(found.steps)} steps are drawn.` : "";
  return (
    <>
      <RidgePlot drawn={drawn} step={step} label={`${label} over steps`} />
      <p className={classes.caption}>
        Steps {count(found.items[0]!.step)} to {count(found.items.at(-1)!.step)}, the newest in front.{chosen}
      </p>
    </>
  );
}

interface Row {
  step: number;
  histogram: LoggedHistogram;
}

const number = (value: number | null) => (value === null ? MISSING : measured(value));

const COLUMNS: readonly Column<Row>[] = [
  { id: "step", header: "Step", cell: ({ step }) => count(step), value: ({ step }) => step, numeric: true },
  { id: "values", header: "Values", cell: ({ histogram }) => count(histogram.values), numeric: true },
  {
    id: "mean",
    header: "Mean",
    cell: ({ histogram }) => number(histogram.mean),
    value: ({ histogram }) => histogram.mean,
    numeric: true,
  },
  {
    id: "std",
    header: "Std",
    cell: ({ histogram }) => number(histogram.std),
    value: ({ histogram }) => histogram.std,
    numeric: true,
  },
  {
    id: "least",
    header: "Min",
    cell: ({ histogram }) => number(histogram.least),
    value: ({ histogram }) => histogram.least,
    numeric: true,
  },
  {
    id: "most",
    header: "Max",
    cell: ({ histogram }) => number(histogram.most),
    value: ({ histogram }) => histogram.most,
    numeric: true,
  },
  {
    id: "nans",
    header: "NaN",
    cell: ({ histogram }) => count(histogram.nans),
    value: ({ histogram }) => histogram.nans,
    numeric: true,
  },
  {
    id: "infs",
    header: "Infinite",
    cell: ({ histogram }) => count(histogram.infs),
    value: ({ histogram }) => histogram.infs,
    numeric: true,
  },
];

function Statistics({ label, found }: { label: string; found: MediaHistograms }) {
  return (
    <DataTable
      label={`Statistics of ${label}`}
      rows={found.items}
      columns={COLUMNS}
      rowId={({ step }) => String(step)}
    />
  );
}
