import { Anchor, Select, TextInput } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { Link } from "@tanstack/react-router";
import { IconSearch } from "@tabler/icons-react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Dialog } from "@/components/ui/Dialog";
import { StateBadge } from "@/components/ui/StateBadge";
import { age, MISSING, percent, plural } from "@/lib/format";
import type { Node } from "@/lib/types";
import { filtered, jobsOn, meanUtilization, statesOf, usedSlots, type NodeFilter } from "../nodeList";
import classes from "./Cluster.module.css";
import { NodeActions } from "./NodeActions";
import { NodeCard } from "./NodeCard";

export interface NodesView extends NodeFilter {
  /** The id of the node whose card is open. */
  card?: string;
}

interface Props {
  nodes: readonly Node[];
  view: NodesView;
  onView(view: NodesView): void;
}

const MOST_JOBS = 3;
/** Where each row is a block of lines, so that 64 of them are twenty screens. */
const STACKED = "(max-width: 560px)";
const FIRST_STACKED = 12;

/** Many nodes, a row each; a click on a name opens the node's card. */
export function NodesTable({ nodes, view, onView }: Props) {
  const stacked = useMediaQuery(STACKED);
  const shown = filtered(nodes, view);
  const opened = nodes.find(({ id }) => id === view.card);
  const close = () => onView({ ...view, card: undefined });
  return (
    <>
      <div className={classes.filter}>
        <TextInput
          aria-label="Find nodes"
          placeholder="Name, address, label, pool or job"
          leftSection={<IconSearch size={14} aria-hidden />}
          value={view.find ?? ""}
          onChange={(event) => onView({ ...view, find: event.currentTarget.value || undefined })}
        />
        <Select
          aria-label="State of the nodes"
          placeholder="Any state"
          value={view.state ?? null}
          data={statesOf(nodes).map(({ state, count }) => ({ value: state, label: `${state} (${count})` }))}
          onChange={(state) => onView({ ...view, state: state ?? undefined })}
          clearable
          clearButtonProps={{ "aria-label": "Any state" }}
        />
        <span className={classes.note} role="status">
          {shown.length === nodes.length ? plural(nodes.length, "node") : `${shown.length} of ${nodes.length} nodes`}
        </span>
      </div>
      <DataTable
        label="Nodes"
        rows={shown}
        columns={columns((card) => onView({ ...view, card }))}
        rowId={({ id }) => id}
        first={stacked ? FIRST_STACKED : undefined}
        stacks
      />
      {opened && (
        <Dialog onClose={close} title={`Node ${opened.name}`} size="lg">
          <NodeCard node={opened} />
        </Dialog>
      )}
    </>
  );
}

function columns(onOpen: (id: string) => void): Column<Node>[] {
  return [
    {
      id: "name",
      header: "Node",
      sticky: true,
      value: ({ name }) => name,
      cell: ({ id, name }) => (
        <Anchor component="button" type="button" inherit onClick={() => onOpen(id)}>
          {name}
        </Anchor>
      ),
    },
    { id: "state", header: "State", value: ({ state }) => state, cell: ({ state }) => <StateBadge state={state} /> },
    {
      id: "slots",
      header: "Slots used",
      numeric: true,
      value: usedSlots,
      cell: (node) => `${usedSlots(node)} of ${node.slots.length}`,
    },
    { id: "jobs", header: "Jobs", cell: (node) => <Jobs node={node} /> },
    {
      id: "cards",
      header: "Cards",
      numeric: true,
      value: meanUtilization,
      cell: (node) => told(meanUtilization(node)),
    },
    {
      id: "cpu",
      header: "CPU",
      numeric: true,
      value: ({ host }) => host?.cpu_percent,
      cell: ({ host }) => told(host?.cpu_percent ?? null),
    },
    {
      id: "heartbeat",
      header: "Heartbeat",
      numeric: true,
      value: ({ heartbeat_age_seconds: seconds }) => seconds,
      cell: ({ heartbeat_age_seconds: seconds }) => (seconds === null ? MISSING : `${age(seconds * 1000)} ago`),
    },
    { id: "actions", header: "Actions", cell: (node) => <NodeActions node={node} /> },
  ];
}

function told(value: number | null): string {
  return value === null ? MISSING : percent(value / 100);
}

function Jobs({ node }: { node: Node }) {
  const jobs = jobsOn(node);
  if (jobs.length === 0) return MISSING;
  return (
    <span className={classes.jobs}>
      {jobs.slice(0, MOST_JOBS).map(({ id, name }) => (
        <Link key={id} to="/jobs/$jobId" params={{ jobId: id }}>
          {name}
        </Link>
      ))}
      {jobs.length > MOST_JOBS && <span>and {jobs.length - MOST_JOBS} more</span>}
    </span>
  );
}
