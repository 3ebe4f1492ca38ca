import { useQuery } from "@tanstack/react-query";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { Keyed, StackedBar } from "@/components/ui/StackedBar";
import { duration, plural, sentence } from "@/lib/format";
import { isTerminal, soFar } from "@/lib/jobs";
import type { Goodput, Job, TimePart } from "@/lib/types";
import { goodputQuery } from "../api/goodput";
import { accountOf, colorOf, nameOf, shareOf, timeOf } from "../causes";
import classes from "./Goodput.module.css";

const COLUMNS: readonly Column<TimePart>[] = [
  { id: "cause", header: "Cause", cell: ({ cause }) => <Keyed color={colorOf(cause)}>{nameOf(cause)}</Keyed> },
  {
    id: "time",
    header: "Time",
    cell: ({ seconds }) => timeOf(seconds),
    value: ({ seconds }) => seconds,
    numeric: true,
    width: 110,
  },
  { id: "share", header: "Share", cell: ({ share }) => shareOf(share), numeric: true, width: 90 },
  { id: "text", header: "Meaning", prose: true, cell: ({ text }) => <span className="muted">{text}</span> },
];

/** Useful step time over wall time, and a cause for each second of the rest. */
export function GoodputPanel({ job }: { job: Job }) {
  const query = useQuery(goodputQuery(job.id, !isTerminal(job.state)));
  return (
    <Panel title="Goodput" flush>
      <PanelStates
        source={query}
        what="the goodput"
        isEmpty={({ parts }) => parts.length === 0}
        empty={
          <EmptyState title={soFar("No time to account for", !isTerminal(job.state))}>
            Time is counted from the moment the job gets its slots.
          </EmptyState>
        }
      >
        {(goodput) =>
          goodput.goodput === null && job.spec?.script != null ? (
            <StepsUnknown goodput={goodput} />
          ) : (
            <Account goodput={goodput} />
          )
        }
      </PanelStates>
    </Panel>
  );
}

/** Of a script that tells of no step: what else its time went into. */
function StepsUnknown({ goodput: { text, parts } }: { goodput: Goodput }) {
  const known = parts.filter(({ cause }) => cause !== "stepping" && cause !== "unaccounted");
  return (
    <>
      <div className={classes.summary}>
        <p className={classes.sentence}>{sentence(text)}.</p>
      </div>
      {known.length > 0 && (
        <DataTable label="Where the time went" rows={known} columns={COLUMNS} rowId={({ cause }) => cause} />
      )}
    </>
  );
}

function Account({ goodput }: { goodput: Goodput }) {
  return (
    <>
      <div className={classes.summary}>
        {goodput.goodput !== null && <div className={classes.number}>{shareOf(goodput.goodput)}</div>}
        <div className={classes.words}>
          <p className={classes.sentence}>
            {goodput.goodput === null ? `${sentence(goodput.text)}.` : account(goodput)}
          </p>
          <StackedBar
            parts={goodput.parts.map(({ cause, seconds }) => ({ name: cause, value: seconds, color: colorOf(cause) }))}
            label={accountOf(goodput)}
          />
        </div>
      </div>
      <DataTable label="Where the time went" rows={goodput.parts} columns={COLUMNS} rowId={({ cause }) => cause} />
    </>
  );
}

/** Behind the share: what it is of, and what is left out. */
function account({
  wall_seconds: wall,
  queued_seconds: queued,
  paused_seconds: paused,
  useful_steps: useful,
  redone_steps: redone,
}: Goodput): string {
  const left = [queued > 1 && `${duration(queued)} in the queue`, paused > 0 && `${duration(paused)} paused`].filter(
    Boolean,
  );
  const again = redone ? `, plus ${plural(redone, "repeated step")}` : "";
  const steps = useful === null ? "" : ` (${plural(useful, "step")}${again})`;
  return `of the ${duration(wall)} since the job got its slots${left.length > 0 ? `, excluding ${left.join(" and ")},` : ""} went into useful training${steps}.`;
}
