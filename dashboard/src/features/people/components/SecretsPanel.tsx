import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlus } from "@tabler/icons-react";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { DocsLink } from "@/components/ui/DocsLink";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import type { Secret } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { secretsQuery, useDeleteSecret } from "../api/secrets";
import { ago } from "../people";
import { SecretDialog } from "./SecretDialog";

type Chosen = Pick<Secret, "project" | "name">;

/** The secrets of all projects: their names, never their values. */
export function SecretsPanel() {
  const query = useQuery(secretsQuery);
  const now = useServerNow(30_000);
  const [setting, setSetting] = useState<Chosen | "new" | null>(null);
  const [deleting, setDeleting] = useState<Secret | null>(null);
  const add = (
    <Button leftSection={<IconPlus size={14} />} onClick={() => setSetting("new")}>
      New secret
    </Button>
  );
  return (
    <Panel title="Secrets" actions={add} flush>
      <PanelStates
        source={query}
        what="the secrets"
        isEmpty={(secrets) => secrets.length === 0}
        empty={
          <EmptyState title="No secrets" action={add}>
            Jobs that name a secret of their project in <code>environment.secrets</code> get it as a variable. Nobody
            can read its value back. <DocsLink page="secrets.html">Secrets</DocsLink>
          </EmptyState>
        }
      >
        {(secrets) => (
          <DataTable
            label="Secrets"
            rows={secrets}
            columns={columns(now, setSetting, setDeleting)}
            rowId={({ project, name }) => `${project}/${name}`}
          />
        )}
      </PanelStates>
      {setting && <SecretDialog replaced={setting === "new" ? undefined : setting} onClose={() => setSetting(null)} />}
      {deleting && <DeleteDialog secret={deleting} onClose={() => setDeleting(null)} />}
    </Panel>
  );
}

function columns(
  now: number,
  onReplace: (secret: Secret) => void,
  onDelete: (secret: Secret) => void,
): Column<Secret>[] {
  return [
    { id: "project", header: "Project", cell: ({ project }) => project, value: ({ project }) => project },
    { id: "name", header: "Name", cell: ({ name }) => <span className="mono">{name}</span>, value: ({ name }) => name },
    { id: "by", header: "Set by", cell: ({ updated_by: by }) => by, value: ({ updated_by: by }) => by },
    {
      id: "set",
      header: "Set",
      cell: ({ updated_at: at }) => ago(at, now),
      value: ({ updated_at: at }) => Date.parse(at),
      sortFirst: "down",
    },
    {
      id: "actions",
      header: "",
      numeric: true,
      cell: (secret) => (
        <Button.Group style={{ justifyContent: "flex-end" }}>
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => onReplace(secret)}
            aria-label={`Replace ${secret.name} of ${secret.project}`}
          >
            Replace
          </Button>
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => onDelete(secret)}
            aria-label={`Delete ${secret.name} of ${secret.project}`}
          >
            Delete
          </Button>
        </Button.Group>
      ),
    },
  ];
}

function DeleteDialog({ secret, onClose }: { secret: Secret; onClose(): void }) {
  const remove = useDeleteSecret();
  return (
    <Confirm
      opened
      title={`Delete ${secret.name}?`}
      verb="Delete secret"
      busy={remove.isPending}
      error={remove.error}
      onClose={onClose}
      onConfirm={() => remove.mutate(secret, { onSuccess: onClose })}
    >
      Jobs of project <strong>{secret.project}</strong> that name <strong>{secret.name}</strong> cannot start any more.
      Ranks that run keep it until they end.
    </Confirm>
  );
}
