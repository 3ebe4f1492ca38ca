import { Button, SegmentedControl, Select } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { LeaveGuard } from "@/components/ui/LeaveGuard";
import { PageHeader } from "@/components/ui/PageHeader";
import { Panel } from "@/components/ui/Panel";
import { YamlEditor } from "@/components/ui/YamlEditor";
import { newIdempotencyKey } from "@/lib/client";
import { asApiError } from "@/lib/errors";
import type { Schema } from "@/lib/spec/schema";
import { useSubmit } from "../api/submit";
import { TEMPLATES } from "../templates";
import { useDraft } from "../useDraft";
import { PlanPreview } from "./PlanPreview";
import { SpecForm } from "./SpecForm";
import classes from "./Submit.module.css";

export type SubmitView = "form" | "yaml";

interface Props {
  schema: Schema;
  initial: string;
  template: string | undefined;
  view: SubmitView;
  onView(view: SubmitView): void;
  onTemplate(name: string): void;
  onSubmitted(jobId: string): void;
}

/** Form and text are two views of one document; the plan beside them answers it as it is. */
export function SubmitForm({ schema, initial, template, view, onView, onTemplate, onSubmitted }: Props) {
  const draft = useDraft(initial, schema);
  const client = useQueryClient();
  const submit = useSubmit();
  const submitted = useRef(false);
  const keyFor = useRef({ text: "", key: "" });
  const send = () => {
    if (keyFor.current.text !== draft.text) keyFor.current = { text: draft.text, key: newIdempotencyKey() };
    submit.mutate(
      { spec: draft.value, planHash: draft.plan.data?.plan_hash, idempotencyKey: keyFor.current.key },
      {
        onSuccess: (job) => {
          submitted.current = true;
          onSubmitted(job.id);
        },
        onError: () => void client.invalidateQueries({ queryKey: ["plan"] }),
      },
    );
  };
  return (
    <>
      <LeaveGuard isEdited={() => draft.text !== initial && !submitted.current} />
      <PageHeader
        title="New job"
        subtitle="Edit as a form or as YAML; both stay in sync."
        actions={
          <Button size="sm" disabled={!draft.current} loading={submit.isPending} onClick={send}>
            Submit job
          </Button>
        }
      />
      {submit.error && <Refused error={submit.error} />}
      <div className={classes.columns}>
        <Panel
          label="Job document"
          flush
          title={
            <SegmentedControl
              aria-label="Edit as"
              data={[
                { value: "form", label: "Form" },
                { value: "yaml", label: "YAML" },
              ]}
              value={view}
              onChange={(next) => onView(next as SubmitView)}
            />
          }
          actions={
            <Select
              aria-label="Template"
              placeholder="Template"
              w={170}
              data={TEMPLATES.map(({ name }) => name)}
              value={template ?? null}
              onChange={(name) => name && onTemplate(name)}
            />
          }
        >
          {view === "yaml" || draft.value === undefined ? (
            <YamlEditor
              text={draft.text}
              schema={schema}
              issues={draft.issues}
              problems={draft.problems}
              onChange={draft.setText}
            />
          ) : (
            <SpecForm
              schema={schema}
              value={draft.value}
              issues={draft.issues}
              onChange={draft.set}
              onWorkload={draft.choose}
            />
          )}
        </Panel>
        <div className={classes.side}>
          <PlanPreview draft={draft} />
        </div>
      </div>
    </>
  );
}

function Refused({ error }: { error: unknown }) {
  const problem = asApiError(error);
  return (
    <p className={classes.refused} role="alert">
      {problem.code === "plan_changed"
        ? "The cluster changed since this plan was made. Look at the new plan and submit again."
        : problem.message}{" "}
      <code>{problem.code}</code>
    </p>
  );
}
