import { ActionIcon, Button, Group, Text, TextInput } from "@mantine/core";
import { IconPencil } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { NumberField } from "@/components/ui/NumberField";
import { wholeNumberProblem } from "@/lib/numbers";
import { useRoleRefusal } from "@/lib/ownership";
import { issueOf } from "@/lib/spec/issues";
import { specSchemaQuery } from "@/lib/spec/query";
import { validate } from "@/lib/spec/schema";
import type { Job, JobEdit } from "@/lib/types";
import { useJobEdit } from "../api/edits";
import { labelPatch, labelsOf, pairsOf } from "../labels";
import { LabelInput } from "./LabelInput";
import { NotesField } from "./NotesField";
import classes from "./JobFilters.module.css";

/** Changes what a job is called and filed under, whatever it does. */
export function EditJob({ job }: { job: Job }) {
  const [opened, setOpened] = useState(false);
  const refused = useRoleRefusal("member");
  return (
    <>
      <Guarded refused={refused} hint="Edit name, labels, priority and notes">
        <ActionIcon
          variant="subtle"
          color="gray"
          size="sm"
          aria-label="Edit name, labels, priority and notes"
          onClick={() => setOpened(true)}
        >
          <IconPencil size={15} />
        </ActionIcon>
      </Guarded>
      <Dialog opened={opened} onClose={() => setOpened(false)} title={`Edit ${job.name}`} size="md">
        <EditForm job={job} onDone={() => setOpened(false)} />
      </Dialog>
    </>
  );
}

function EditForm({ job, onDone }: { job: Job; onDone(): void }) {
  // What others change meanwhile is no change of this form, and stays. Notes that both change are asked about.
  const [before, setBefore] = useState(job);
  const [name, setName] = useState(before.name);
  const [project, setProject] = useState(before.project);
  const [priority, setPriority] = useState<number | string | undefined>(before.priority);
  const [labels, setLabels] = useState(pairsOf(before.labels));
  const [labelProblem, setLabelProblem] = useState<string | null>(null);
  const [notes, setNotes] = useState(before.notes);
  const saving = useJobEdit(job);
  const wrong = priority === undefined ? "Must be a whole number from 0 to 100" : wholeNumberProblem(priority, 0, 100);
  const { data: schema } = useQuery(specSchemaQuery);
  const names = { name: name.trim(), project: project.trim() };
  const issues = schema ? validate(schema, names) : [];
  const isWrong = wrong !== null || labelProblem !== null || issues.length > 0;
  const isOvertaken = notes !== before.notes && ![before.notes, notes].includes(job.notes);
  const edit = editOf(before, { ...names, priority: Number(priority), notes }, labels);
  const seeTheirs = () => {
    setBefore({ ...before, notes: job.notes });
    saving.reset();
  };
  return (
    <form
      className={classes.fields}
      onSubmit={(event) => {
        event.preventDefault();
        if (!isWrong && !isOvertaken) saving.mutate(edit, { onSuccess: onDone });
      }}
    >
      <TextInput
        label="Name"
        value={name}
        error={issueOf(issues, "/name")}
        data-autofocus
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <TextInput
        label="Project"
        value={project}
        error={issueOf(issues, "/project")}
        onChange={(event) => setProject(event.currentTarget.value)}
      />
      <NumberField
        label="Priority"
        description="0 to 100. Queued jobs with a higher one start first."
        value={priority}
        error={wrong}
        onValue={setPriority}
      />
      <LabelInput
        label="Labels"
        value={labels}
        problem={labelProblem}
        onChange={setLabels}
        onProblem={setLabelProblem}
      />
      <NotesField
        value={notes}
        overtakenBy={isOvertaken ? job.notes : null}
        onChange={setNotes}
        onReplace={seeTheirs}
        onTake={() => {
          seeTheirs();
          setNotes(job.notes);
        }}
      />
      {saving.error && !isOvertaken && (
        <Text size="sm" role="alert" c="var(--bad-text)">
          <ErrorText error={saving.error} />
        </Text>
      )}
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={onDone}>
          Cancel
        </Button>
        <Button
          type="submit"
          disabled={isWrong || isOvertaken || Object.keys(edit).length === 0}
          loading={saving.isPending}
        >
          Save
        </Button>
      </Group>
    </form>
  );
}

type Plain = Required<Pick<Job, "name" | "project" | "priority" | "notes">>;

/** What differs from the job. */
function editOf(job: Job, wanted: Plain, labels: readonly string[]): JobEdit {
  const changed = Object.entries(wanted).filter(([field, value]) => job[field as keyof Plain] !== value);
  const patch = labelPatch(job.labels, labelsOf(labels));
  return { ...Object.fromEntries(changed), ...(Object.keys(patch).length > 0 ? { labels: patch } : {}) };
}
