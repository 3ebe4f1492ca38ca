import { Button, Select } from "@mantine/core";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { dateTime, MISSING } from "@/lib/format";
import type { AuditEntry } from "@/lib/types";
import { auditQuery, usersQuery, type AuditFilter } from "../api/people";
import { ACTIONS } from "../people";
import classes from "./People.module.css";

interface Props {
  filter: AuditFilter;
  onFilter(filter: AuditFilter): void;
}

/** Who did what, and from where; the newest first. */
export function AuditPanel({ filter, onFilter }: Props) {
  const query = useInfiniteQuery(auditQuery(filter));
  const users = useQuery(usersQuery).data ?? [];
  const entries = query.data?.pages.flatMap(({ items }) => items);
  const isFiltered = filter.user !== undefined || filter.action !== undefined;
  return (
    <Panel
      title="Audit"
      actions={
        <>
          <Select
            aria-label="User"
            placeholder="All users"
            w={150}
            clearable
            searchable
            data={users.map(({ name }) => name)}
            value={filter.user ?? null}
            onChange={(user) => onFilter({ ...filter, user: user ?? undefined })}
          />
          <Select
            aria-label="Action"
            placeholder="All actions"
            w={190}
            clearable
            data={ACTIONS}
            value={filter.action ?? null}
            onChange={(action) => onFilter({ ...filter, action: action ?? undefined })}
          />
        </>
      }
      flush
    >
      <PanelStates
        source={{ ...query, data: entries }}
        what="the audit"
        rows={8}
        isEmpty={(found) => found.length === 0}
        empty={<EmptyState title={isFiltered ? "No action matches" : "No actions yet"} />}
      >
        {(found) => <DataTable label="Audit" rows={found} columns={COLUMNS} rowId={({ seq }) => String(seq)} />}
      </PanelStates>
      {query.hasNextPage && (
        <div className={classes.more}>
          <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
            Show older
          </Button>
        </div>
      )}
    </Panel>
  );
}

const COLUMNS: Column<AuditEntry>[] = [
  { id: "time", header: "Time", cell: ({ time }) => dateTime(time) },
  { id: "user", header: "User", cell: (entry) => entry.user_name },
  {
    id: "message",
    header: "What",
    prose: true,
    width: 360,
    cell: ({ message, job_id: jobId }) => (
      <>
        {message}
        {jobId && (
          <>
            {" · "}
            <Link to="/jobs/$jobId" params={{ jobId }}>
              Open job
            </Link>
          </>
        )}
      </>
    ),
  },
  { id: "action", header: "Action", cell: ({ action }) => <span className="mono">{action}</span> },
  { id: "address", header: "Address", cell: ({ address }) => address ?? MISSING },
  { id: "via", header: "Browser or key", prose: true, width: 300, cell: ({ via }) => via ?? MISSING },
];
