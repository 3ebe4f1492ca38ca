import { ActionIcon, Button, TextInput, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconDownload, IconTrash } from "@tabler/icons-react";
import { useState, type ReactNode } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { NumberField } from "@/components/ui/NumberField";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge, type Tone } from "@/components/ui/StateBadge";
import { asApiError } from "@/lib/errors";
import { age, bytes, count, plural } from "@/lib/format";
import { isTerminal, soFar } from "@/lib/jobs";
import { wholeNumberProblem } from "@/lib/numbers";
import { useRefusal, useRoleRefusal } from "@/lib/ownership";
import type { Artifact, Job, ProfileRequest } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import {
  artifactsQuery,
  contentUrl,
  eventFilesUrl,
  profileQuery,
  usePerfetto,
  useProfile,
  useRemove,
} from "../api/artifacts";
import { ranksOf } from "../ranks";
import classes from "./Artifacts.module.css";

const TONES: Record<Artifact["state"], Tone> = { arriving: "active", ready: "good", failed: "bad" };

/** What the job has left to be downloaded: its curves for TensorBoard, and traces of its steps. */
export function ArtifactsPanel({ job }: { job: Job }) {
  const asked = useQuery(profileQuery(job.id)).data;
  const query = useQuery(artifactsQuery(job.id, asked?.state === "open"));
  const remove = useRemove(job.id);
  const perfetto = usePerfetto(job.name);
  const refused = useRefusal(job);
  const now = useServerNow(10_000);
  const [removing, setRemoving] = useState<Artifact | null>(null);
  const actions = (artifact: Artifact) => (
    <RowActions
      artifact={artifact}
      refused={refused}
      opening={perfetto.isPending && perfetto.variables.id === artifact.id}
      onOpen={() => perfetto.mutate(artifact)}
      onRemove={() => {
        remove.reset();
        setRemoving(artifact);
      }}
    />
  );
  return (
    <Panel title="Traces" flush actions={<EventFilesLink jobId={job.id} />}>
      {job.state === "running" && job.spec?.script == null && <ProfileForm jobId={job.id} asked={asked ?? null} />}
      {perfetto.error && (
        <p role="alert" className={classes.problem}>
          <ErrorText error={perfetto.error} />{" "}
          <a href={contentUrl(perfetto.variables)} download>
            Download the trace
          </a>
        </p>
      )}
      <PanelStates
        source={query}
        what="the traces"
        isEmpty={(page) => page.items.length === 0}
        empty={
          <EmptyState title={soFar("No traces", !isTerminal(job.state))}>
            Record one while the job runs, or set <code>profile</code> in the spec.
          </EmptyState>
        }
      >
        {(page) => (
          <DataTable label="Traces" rows={page.items} columns={columnsAt(now, actions)} rowId={({ id }) => id} />
        )}
      </PanelStates>
      {removing && (
        <Confirm
          opened
          title={`Delete the trace of rank ${removing.rank}?`}
          verb="Delete trace"
          busy={remove.isPending}
          error={remove.error}
          onClose={() => setRemoving(null)}
          onConfirm={() => remove.mutate(removing, { onSuccess: () => setRemoving(null) })}
        >
          <p>{`Steps ${stepsOf(removing)}, ${bytes(removing.bytes)}: it cannot be restored.`}</p>
        </Confirm>
      )}
    </Panel>
  );
}

function EventFilesLink({ jobId }: { jobId: string }) {
  return (
    <Button
      component="a"
      href={eventFilesUrl(jobId)}
      download
      size="compact-xs"
      variant="default"
      leftSection={<IconDownload size={13} />}
    >
      Curves for TensorBoard
    </Button>
  );
}

/** The API's own limit. */
const MOST_STEPS = 20;

function ProfileForm({ jobId, asked }: { jobId: string; asked: ProfileRequest | null }) {
  const [steps, setSteps] = useState<number | string | undefined>(3);
  const [ranks, setRanks] = useState("0");
  const profile = useProfile(jobId);
  const chosen = ranksOf(ranks);
  const problem = wholeNumberProblem(steps, 1, MOST_STEPS);
  const ready = chosen !== null && typeof steps === "number" && problem === null;
  const open = asked?.state === "open";
  return (
    <form
      className={classes.form}
      aria-label="Record a trace"
      onSubmit={(event) => {
        event.preventDefault();
        if (ready) profile.mutate({ steps, ranks: chosen });
      }}
    >
      <NumberField label="Steps" value={steps} w={90} error={problem && `1 to ${MOST_STEPS}`} onValue={setSteps} />
      <TextInput
        label="Ranks"
        value={ranks}
        w={130}
        error={chosen ? undefined : "such as 0,3"}
        onChange={(event) => setRanks(event.currentTarget.value)}
      />
      <Guarded refused={useRoleRefusal("member")}>
        <Button type="submit" loading={profile.isPending} disabled={open || !ready}>
          Record a trace
        </Button>
      </Guarded>
      <span role="status" className={classes.status}>
        {open ? waitingFor(asked) : profile.error ? asApiError(profile.error).message : null}
      </span>
    </form>
  );
}

function waitingFor({ ranks, answered, steps }: ProfileRequest): string {
  return `Waiting for ${plural(ranks.length - answered.length, "rank")} to trace ${plural(steps, "step")}`;
}

interface RowProps {
  artifact: Artifact;
  refused: string | null;
  opening: boolean;
  onOpen(): void;
  onRemove(): void;
}

function RowActions({ artifact, refused, opening, onOpen, onRemove }: RowProps) {
  const what = `the trace of rank ${artifact.rank}, steps ${stepsOf(artifact)}`;
  return (
    <span className={classes.actions}>
      {artifact.state === "ready" && (
        <>
          <Tooltip label="Opens in a new window of ui.perfetto.dev; the file does not leave the browser">
            <Button
              size="compact-xs"
              variant="default"
              loading={opening}
              aria-label={`Open in Perfetto ${what}`}
              onClick={onOpen}
            >
              Open in Perfetto
            </Button>
          </Tooltip>
          <Tooltip label="Download">
            <ActionIcon
              component="a"
              href={contentUrl(artifact)}
              download
              variant="subtle"
              aria-label={`Download ${what}`}
            >
              <IconDownload size={15} />
            </ActionIcon>
          </Tooltip>
        </>
      )}
      <Guarded refused={refused} hint="Delete">
        <ActionIcon variant="subtle" color="red" aria-label={`Delete ${what}`} onClick={onRemove}>
          <IconTrash size={15} />
        </ActionIcon>
      </Guarded>
    </span>
  );
}

function stepsOf({ first_step: first, last_step: last }: Artifact): string {
  return first === last ? count(first) : `${count(first)} to ${count(last)}`;
}

function columnsAt(now: number, actions: (artifact: Artifact) => ReactNode): Column<Artifact>[] {
  return [
    { id: "rank", header: "Rank", cell: ({ rank }) => rank, value: ({ rank }) => rank, numeric: true, width: 70 },
    { id: "steps", header: "Steps", cell: stepsOf, value: (row) => row.first_step, numeric: true },
    {
      id: "state",
      header: "State",
      prose: true,
      cell: ({ state, error }) => (
        <span className={classes.state}>
          <StateBadge state={state} tone={TONES[state]} />
          {error && <span className="muted">{error}</span>}
        </span>
      ),
    },
    { id: "bytes", header: "Size", cell: (row) => bytes(row.bytes), value: (row) => row.bytes, numeric: true },
    { id: "generation", header: "Generation", cell: ({ generation }) => generation, numeric: true },
    {
      id: "age",
      header: "Taken",
      cell: (row) => `${age(now - Date.parse(row.created_at))} ago`,
      value: (row) => row.created_at,
      numeric: true,
    },
    { id: "actions", header: "", cell: actions, numeric: true },
  ];
}
