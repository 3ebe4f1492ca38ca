import { Button, Checkbox, Group, Text } from "@mantine/core";
import { useQueries, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { ErrorText } from "@/components/ui/ErrorText";
import { plural } from "@/lib/format";
import { jobQuery } from "@/lib/jobQuery";
import { keys } from "@/lib/keys";
import type { Job, JobEdit, Me } from "@/lib/types";
import { useJobChanges, type JobChange, type Refusal } from "../api/edits";
import { DONE, partition, TITLES, WARNINGS, type Bulk } from "../bulk";
import { LabelFields } from "./LabelFields";
import classes from "./JobFilters.module.css";

export type { Bulk };

interface Props {
  bulk: Bulk;
  ids: readonly string[];
  onClose(): void;
  /** All of them are done: nothing is left to be selected. */
  onDone(): void;
}

/** Says which of the selected jobs will be changed, and afterwards which were not, and why. */
export function ChangeDialog({ bulk, ids, onClose, onDone }: Props) {
  const queries = useQueries({ queries: ids.map(jobQuery) });
  const me = useQueryClient().getQueryData<Me | null>(keys.me);
  const [edit, setEdit] = useState<JobEdit>({});
  const [problem, setProblem] = useState<string | null>(null);
  const [checkpoints, setCheckpoints] = useState(false);
  const work = useJobChanges();
  const jobs = queries.flatMap(({ data }) => data ?? []);
  const loading = queries.some(({ isPending }) => isPending);
  const { fit, unfit } = partition(bulk, jobs, me);
  const refusals = work.data ?? [];
  const send = () =>
    work.mutate(
      { jobs: fit, change: changeOf(bulk, edit, checkpoints) },
      { onSuccess: (refused) => refused.length === 0 && onDone() },
    );
  const isEdited = Object.keys(edit).length > 0 && problem === null;
  const ready = !loading && fit.length > 0 && (bulk !== "label" || isEdited);
  return (
    <Dialog onClose={onClose} title={TITLES[bulk](loading ? ids.length : fit.length)} size="md">
      {loading ? <p role="status">Looking at {plural(ids.length, "job")}…</p> : <Fit bulk={bulk} jobs={fit} />}
      {bulk === "label" && <LabelFields problem={problem} onChange={setEdit} onProblem={setProblem} />}
      {bulk === "delete" && (
        <Checkbox
          mt="sm"
          label="Delete their checkpoints as well"
          checked={checkpoints}
          onChange={(event) => setCheckpoints(event.currentTarget.checked)}
        />
      )}
      <Left title="Left as they are:" items={unfit} />
      {work.isSuccess && <Left title="Refused, the others are done:" items={refusals} alert />}
      {work.error && (
        <Text size="sm" mt="sm" role="alert" c="var(--bad-text)">
          <ErrorText error={work.error} />
        </Text>
      )}
      <Group justify="flex-end" mt="lg" gap="xs">
        <Button variant="default" onClick={onClose} data-autofocus>
          {work.isSuccess ? "Close" : bulk === "cancel" ? "Keep running" : "Cancel"}
        </Button>
        <Button
          color={bulk === "cancel" || bulk === "delete" ? "red.8" : undefined}
          disabled={!ready || work.isSuccess}
          loading={work.isPending}
          onClick={send}
        >
          {DONE[bulk]}
        </Button>
      </Group>
    </Dialog>
  );
}

function changeOf(bulk: Bulk, edit: JobEdit, checkpoints: boolean): JobChange {
  if (bulk === "label") return { kind: "edit", edit };
  return bulk === "delete" ? { kind: "delete", checkpoints } : { kind: bulk };
}

function Fit({ bulk, jobs }: { bulk: Bulk; jobs: readonly Job[] }): ReactNode {
  if (jobs.length === 0) return <p>None of the selected jobs can be changed like this.</p>;
  return (
    <>
      <p>
        <strong>{jobs.map(({ name }) => name).join(", ")}</strong>
      </p>
      {WARNINGS[bulk] && <p>{WARNINGS[bulk]}</p>}
    </>
  );
}

function Left({ title, items, alert }: { title: string; items: readonly Refusal[]; alert?: boolean }) {
  if (items.length === 0) return null;
  return (
    <div className={alert ? undefined : classes.left} role={alert ? "alert" : undefined}>
      {title}
      <ul className={classes.refusals}>
        {items.map(({ job, message }) => (
          <li key={job.id}>
            {job.name}: {message}
          </li>
        ))}
      </ul>
    </div>
  );
}
