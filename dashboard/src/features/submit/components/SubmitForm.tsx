import { useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { AboutError } from "@/components/ui/AboutError";
import { DocumentPanel, type DocumentView, type Target } from "@/components/ui/DocumentPanel";
import { DraftNotice } from "@/components/ui/DraftNotice";
import { LeaveGuard } from "@/components/ui/LeaveGuard";
import { PageHeader } from "@/components/ui/PageHeader";
import { SubmitBar } from "@/components/ui/SubmitBar";
import { TemplateSelect } from "@/components/ui/TemplateSelect";
import { newIdempotencyKey } from "@/lib/client";
import { useDrafts } from "@/lib/drafts";
import { asApiError } from "@/lib/errors";
import { useRoleRefusal } from "@/lib/ownership";
import { choicesFrom } from "@/lib/spec/choices";
import type { Schema } from "@/lib/spec/schema";
import { useKeeping } from "@/lib/useKeeping";
import { useSendFolder } from "../api/code";
import { useSubmit } from "../api/submit";
import { TEMPLATES } from "../templates";
import { useDraft, type Draft } from "../useDraft";
import { PlanPreview } from "./PlanPreview";
import { SpecForm } from "./SpecForm";
import classes from "./Submit.module.css";

interface Props {
  schema: Schema;
  /** What the document begins as, and where that is from: `template:gpt_stdlib`, `from:JOB`. */
  initial: string;
  source: string;
  view: DocumentView;
  onView(view: DocumentView): void;
  onSource(source: string): void;
  onSubmitted(jobId: string): void;
}

/** Form and text are two views of one document; the plan beside them answers it as it is. */
export function SubmitForm({ schema, initial, source, view, onView, onSource, onSubmitted }: Props) {
  const drafts = useDrafts("job");
  const [{ begun, restored, others }] = useState(() => ({
    begun: initial,
    restored: drafts.read(source),
    others: choicesFrom(drafts.list().filter((one) => one.source !== source)),
  }));
  const draft = useDraft(restored?.text ?? begun, schema);
  const kept = useKeeping(drafts, source, draft.text, begun);
  const { send, submit, submitted } = useSending(draft, (jobId) => {
    kept.drop();
    onSubmitted(jobId);
  });
  const sendFolder = useSendFolder();
  const refusal = useRoleRefusal("member");
  const [target, setTarget] = useState<Target | null>(null);
  const show = (pointer: string) => setTarget({ pointer });
  return (
    <>
      <LeaveGuard noun="job" isEdited={() => draft.text !== begun && !submitted.current} kept={kept} />
      <PageHeader title="New job" subtitle="Edit as a form or as YAML; both stay in sync." />
      {restored && draft.text !== begun && (
        <DraftNotice noun="job" at={restored.at} onStartOver={() => draft.setText(begun)} />
      )}
      {submit.error && !draft.planError && <Refused error={submit.error} />}
      <div className={classes.columns}>
        <DocumentPanel
          label="Job document"
          textLabel="Job spec as YAML"
          {...{ schema, draft, view, onView, target }}
          onTarget={setTarget}
          picker={<TemplateSelect templates={TEMPLATES} drafts={others} value={source} onChoose={onSource} />}
          form={
            <SpecForm
              schema={schema}
              value={draft.value}
              issues={draft.issues}
              sendFolder={sendFolder}
              onChange={draft.set}
              onWorkload={draft.choose}
            />
          }
        />
        <div className={classes.side}>
          <PlanPreview draft={draft} onShow={show} />
        </div>
      </div>
      <SubmitBar
        verb="Submit job"
        refusal={refusal}
        problems={draft.problems}
        issues={draft.issues}
        isUnplanned={draft.planError !== null}
        isSending={sendFolder.isPending}
        ready={draft.sound}
        busy={submit.isPending || submit.isSuccess} // the next page may take a moment to come
        onSubmit={send}
        onShow={show}
      />
    </>
  );
}

/** One key for one text: what is sent again submits nothing twice. */
function useSending(draft: Draft, onSubmitted: (jobId: string) => void) {
  const client = useQueryClient();
  const submit = useSubmit();
  const submitted = useRef(false);
  const keyFor = useRef({ text: "", key: "" });
  const send = () => {
    if (keyFor.current.text !== draft.text) keyFor.current = { text: draft.text, key: newIdempotencyKey() };
    submit.mutate(
      { spec: draft.value, idempotencyKey: keyFor.current.key },
      {
        onSuccess: (job) => {
          submitted.current = true;
          onSubmitted(job.id);
        },
        onError: () => void client.invalidateQueries({ queryKey: ["plan"] }),
      },
    );
  };
  return { send, submit, submitted };
}

function Refused({ error }: { error: unknown }) {
  const problem = asApiError(error);
  return (
    <p className={classes.refused} role="alert">
      {problem.code === "plan_changed"
        ? "The cluster changed since this plan was made. Look at the new plan and submit again."
        : problem.message}{" "}
      <code>{problem.code}</code>
      <AboutError error={error} />
    </p>
  );
}
