import { useQuery } from "@tanstack/react-query";
import { Facts } from "@/components/ui/Facts";
import { Panel, PanelStates } from "@/components/ui/Panel";
import { Keyed, StackedBar } from "@/components/ui/StackedBar";
import { bytes, count, percent } from "@/lib/format";
import type { Storage } from "@/lib/types";
import { storageQuery } from "../api/storage";
import classes from "./Storage.module.css";

const COLORS: Record<Storage["kinds"][number]["kind"], string> = {
  points: "--series-1",
  curves: "--series-2",
  lines: "--series-3",
  readings: "--series-5",
  traces: "--series-4",
  files: "--series-6",
};
const NAMES: Record<Storage["kinds"][number]["kind"], string> = {
  points: "Raw points",
  curves: "Curves",
  lines: "Log lines",
  readings: "Readings of nodes and cards",
  traces: "Traces",
  files: "Files of jobs",
};

/** What is stored, by kind, and the room that is left for it. */
export function StoragePanel() {
  const query = useQuery(storageQuery);
  return (
    <Panel title="Stored data">
      <PanelStates source={query} what="the stored data" rows={4}>
        {(storage) => <Sizes storage={storage} />}
      </PanelStates>
    </Panel>
  );
}

function Sizes({ storage }: { storage: Storage }) {
  const parts = storage.kinds.map(({ kind, bytes: size }) => ({ name: NAMES[kind], value: size, color: COLORS[kind] }));
  return (
    <>
      <Facts facts={factsOf(storage)} />
      <div className={classes.kinds}>
        {storage.kinds.map(({ kind, rows, bytes: size }) => (
          <Keyed key={kind} color={COLORS[kind]}>
            {NAMES[kind]}: {bytes(size)} <span className="muted">({count(rows)})</span>
          </Keyed>
        ))}
      </div>
      <div className={classes.bar}>
        <StackedBar parts={parts} label={parts.map(({ name, value }) => `${name} ${bytes(value)}`).join(", ")} />
      </div>
    </>
  );
}

function factsOf({
  stored_bytes: stored,
  limit_bytes: limit,
  database_bytes: database,
  free_in_database_bytes: free,
  disk,
}: Storage) {
  return [
    {
      name: "Points, curves and log lines",
      value: bytes(stored),
      hint: limit === null ? "no limit" : `${percent(stored / limit, 1)} of ${bytes(limit)}`,
    },
    { name: "Database", value: bytes(database), hint: free > 0 ? `${bytes(free)} of it free for new data` : undefined },
    ...(disk
      ? [
          {
            name: "Free disk",
            value: bytes(disk.free_bytes),
            hint: `of ${bytes(disk.total_bytes)}; watermark ${bytes(disk.low_bytes)}`,
          },
        ]
      : []),
  ];
}

/** The policy in the coordinator's own sentences. */
export function PolicyPanel() {
  const query = useQuery(storageQuery);
  return (
    <Panel title="Retention">
      <PanelStates source={query} what="the policy" rows={8}>
        {({ policy, hint }) => (
          <>
            <ul className={classes.policy}>
              {policy.map((sentence) => (
                <li key={sentence}>{sentence}</li>
              ))}
            </ul>
            {hint && <p className={classes.hint}>{hint}</p>}
          </>
        )}
      </PanelStates>
    </Panel>
  );
}
