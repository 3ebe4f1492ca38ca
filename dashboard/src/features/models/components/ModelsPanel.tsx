import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { IconDownload, IconTag, IconTrash } from "@tabler/icons-react";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Guarded } from "@/components/ui/Guarded";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { age, bytes, count, measured, plural } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import type { ModelVersion, RegisteredModel } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { modelsQuery, versionUrl } from "../api/models";
import { AliasDialog, DeleteVersionDialog } from "./VersionDialogs";
import classes from "./Models.module.css";

const FIRST_VERSIONS = 10;

/** Every registered model with its versions, and where each came from. */
export function ModelsPanel() {
  const query = useInfiniteQuery(modelsQuery);
  const models = query.data?.pages.flatMap((page) => page.items) ?? [];
  if (models.length === 0) {
    return (
      <Panel label="Models" flush>
        <PanelStates
          source={query}
          what="the models"
          isEmpty={() => true}
          empty={
            <EmptyState title="No models yet">
              Register a checkpoint or a file on the page of its job, or with this command:{" "}
              <code>paceline models register NAME --checkpoint ID</code>
            </EmptyState>
          }
        >
          {() => null}
        </PanelStates>
      </Panel>
    );
  }
  return (
    <div className="stack">
      {models.map((model) => (
        <ModelPanel key={model.name} model={model} />
      ))}
      {query.hasNextPage && (
        <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
          Show more models
        </Button>
      )}
    </div>
  );
}

function ModelPanel({ model }: { model: RegisteredModel }) {
  const now = useServerNow(10_000);
  const [aliasing, setAliasing] = useState<ModelVersion | null>(null);
  const [deleting, setDeleting] = useState<ModelVersion | null>(null);
  const actions = (version: ModelVersion) => (
    <RowActions version={version} onAlias={() => setAliasing(version)} onDelete={() => setDeleting(version)} />
  );
  return (
    <Panel title={model.name} flush actions={<span className="hint">{plural(model.versions.length, "version")}</span>}>
      {model.versions.length === 0 ? (
        <EmptyState title="All versions were deleted" />
      ) : (
        <DataTable
          stacks
          label={`Versions of ${model.name}`}
          rows={model.versions}
          first={FIRST_VERSIONS}
          columns={columnsAt(now, actions)}
          rowId={({ number }) => String(number)}
        />
      )}
      {aliasing && <AliasDialog version={aliasing} onClose={() => setAliasing(null)} />}
      {deleting && <DeleteVersionDialog version={deleting} onClose={() => setDeleting(null)} />}
    </Panel>
  );
}

function RowActions({ version, onAlias, onDelete }: { version: ModelVersion; onAlias(): void; onDelete(): void }) {
  const refused = useRoleRefusal("member");
  const name = `${version.model}:${version.number}`;
  return (
    <span className={classes.actions}>
      <Tooltip label={version.checkpoint_id ? "Download the weights as safetensors" : "Download"}>
        <ActionIcon component="a" href={versionUrl(version)} download variant="subtle" aria-label={`Download ${name}`}>
          <IconDownload size={15} />
        </ActionIcon>
      </Tooltip>
      <Guarded refused={refused} hint="Move an alias here">
        <ActionIcon variant="subtle" color="gray" aria-label={`Aliases of ${name}`} onClick={onAlias}>
          <IconTag size={15} />
        </ActionIcon>
      </Guarded>
      <Guarded refused={refused} hint="Delete">
        <ActionIcon variant="subtle" color="red" aria-label={`Delete ${name}`} onClick={onDelete}>
          <IconTrash size={15} />
        </ActionIcon>
      </Guarded>
    </span>
  );
}

/** Where a version came from: the job, and what of it. */
function Origin({ version }: { version: ModelVersion }) {
  const tab = version.checkpoint_id ? "checkpoints" : "artifacts";
  return (
    <span className={classes.origin}>
      <Link to="/jobs/$jobId" params={{ jobId: version.job_id }} search={{ tab } as never}>
        {version.job_name}
      </Link>
      <span className="muted">{version.path ?? `step ${count(version.step)}`}</span>
      <Link to="/jobs/$jobId" params={{ jobId: version.job_id }} search={{ tab: "spec" } as never}>
        Spec
      </Link>
    </span>
  );
}

function metricsOf({ metrics }: ModelVersion): string {
  return Object.entries(metrics)
    .map(([name, value]) => `${name} ${measured(value)}`)
    .join(", ");
}

function columnsAt(now: number, actions: (version: ModelVersion) => ReactNode): Column<ModelVersion>[] {
  return [
    {
      id: "number",
      header: "Version",
      cell: (row) => row.number,
      value: (row) => row.number,
      numeric: true,
      width: 90,
    },
    {
      id: "aliases",
      header: "Aliases",
      cell: (row) => (
        <span className={classes.aliases}>
          {row.aliases.map((alias) => (
            <StateBadge key={alias} state={alias} tone="active" />
          ))}
        </span>
      ),
    },
    { id: "from", header: "From", prose: true, width: 240, cell: (row) => <Origin version={row} /> },
    { id: "metrics", header: "Metrics", prose: true, cell: metricsOf },
    { id: "bytes", header: "Size", cell: (row) => bytes(row.bytes), value: (row) => row.bytes, numeric: true },
    { id: "notes", header: "Notes", prose: true, cell: (row) => row.notes },
    {
      id: "age",
      header: "Registered",
      cell: (row) => `${age(now - Date.parse(row.created_at))} ago by ${row.created_by}`,
      value: (row) => row.created_at,
    },
    { id: "actions", header: "", cell: actions, numeric: true },
  ];
}
