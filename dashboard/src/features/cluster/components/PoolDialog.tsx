import { NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo, useState } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { DocsLink } from "@/components/ui/DocsLink";
import { FormEnd } from "@/components/ui/FormEnd";
import { LoadingState, PanelStates } from "@/components/ui/Panel";
import { ProblemList } from "@/components/ui/ProblemList";
import { asApiError } from "@/lib/errors";
import { serverIssues } from "@/lib/spec/issues";
import { isRecord, type Schema } from "@/lib/spec/schema";
import { useDocument } from "@/lib/spec/useDocument";
import type { NodePool } from "@/lib/types";
import { poolSchemaQuery, useApplyPool } from "../api/pools";
import { documentOf, POOL_TEMPLATES } from "../pools";
import classes from "./Cluster.module.css";

const YamlEditor = lazy(async () => ({ default: (await import("@/components/ui/YamlEditor")).YamlEditor }));

interface Props {
  /** Null: a new one. */
  pool: NodePool | null;
  onClose(): void;
}

/** A pool as the document that `paceline pools apply` takes, to be created or changed. */
export function PoolDialog({ pool, onClose }: Props) {
  const schema = useQuery(poolSchemaQuery);
  return (
    <Dialog onClose={onClose} title={pool ? `Edit the pool ${pool.name}` : "New pool"} size="xl">
      <PanelStates source={schema} what="the schema of pools" rows={8}>
        {(found) => <PoolForm schema={found} pool={pool} onClose={onClose} />}
      </PanelStates>
    </Dialog>
  );
}

function PoolForm({ schema, pool, onClose }: Props & { schema: Schema }) {
  const [kind, setKind] = useState("ssh");
  const [target, setTarget] = useState<{ pointer: string } | null>(null);
  const draft = useDocument(pool ? documentOf(pool) : POOL_TEMPLATES[kind]!.text, schema);
  const apply = useApplyPool({ isNew: pool === null });
  const name = pool?.name ?? (isRecord(draft.value) ? String(draft.value.name) : "");
  const refused = apply.error ? serverIssues(asApiError(apply.error), draft.value) : null;
  const issues = useMemo(() => [...draft.local, ...(refused ?? [])], [draft.local, refused]);
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault();
        apply.mutate({ name, document: draft.value }, { onSuccess: onClose });
      }}
    >
      {!pool && (
        <NativeSelect
          label="Begin with"
          description="Its nodes come from there. Choosing another one replaces the text below."
          data={Object.entries(POOL_TEMPLATES).map(([value, { label }]) => ({ value, label }))}
          value={kind}
          onChange={(event) => {
            setKind(event.currentTarget.value);
            draft.setText(POOL_TEMPLATES[event.currentTarget.value]!.text);
            apply.reset();
          }}
        />
      )}
      <div className={classes.poolText}>
        <Suspense fallback={<LoadingState rows={8} what="the editor" />}>
          <YamlEditor
            label="Pool as YAML"
            text={draft.text}
            schema={schema}
            issues={issues}
            problems={draft.problems}
            target={target}
            onChange={(text) => {
              draft.setText(text);
              apply.reset();
            }}
          />
        </Suspense>
      </div>
      {(draft.problems.length > 0 || issues.length > 0) && (
        <ProblemList
          noun="pool"
          problems={draft.problems}
          issues={issues}
          onShow={(pointer) => setTarget({ pointer })}
        />
      )}
      <p className={classes.note}>
        {pool
          ? "Nodes that it has stay as they are; further ones are launched as it says now."
          : "This is one entry of the list in the file that paceline pools apply takes."}{" "}
        <DocsLink page="nodes.html">Fields of each provider</DocsLink>{" "}
        <DocsLink page="autoscaling.html">Autoscale</DocsLink>
      </p>
      <FormEnd verb={pool ? "Save" : "Create pool"} work={apply} disabled={!draft.sound} onClose={onClose} />
    </form>
  );
}
