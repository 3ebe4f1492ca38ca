import { useRef, useState, type ReactNode } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { DocumentPanel, type DocumentView, type Target } from "@/components/ui/DocumentPanel";
import { DraftNotice } from "@/components/ui/DraftNotice";
import { ErrorText } from "@/components/ui/ErrorText";
import { LeaveGuard } from "@/components/ui/LeaveGuard";
import { PageHeader } from "@/components/ui/PageHeader";
import { SubmitBar } from "@/components/ui/SubmitBar";
import { TemplateSelect } from "@/components/ui/TemplateSelect";
import { newIdempotencyKey } from "@/lib/client";
import { useDrafts } from "@/lib/drafts";
import { asApiError } from "@/lib/errors";
import { plural } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import { choicesFrom } from "@/lib/spec/choices";
import { parse } from "@/lib/spec/document";
import type { Schema } from "@/lib/spec/schema";
import { useKeeping } from "@/lib/useKeeping";
import { useStartExperiment } from "../api/create";
import { at, isSameExperiment } from "../draft";
import { lossOfReplacing } from "../experiments";
import { TEMPLATES } from "../templates";
import { useExperimentDraft, type ExperimentDraft } from "../useExperimentDraft";
import { ExperimentForm } from "./ExperimentForm";
import classes from "./ExperimentForm.module.css";
import { ExperimentPlanPanel } from "./ExperimentPlanPanel";

interface Props {
  /** Of the whole document, the base job included. */
  schema: Schema;
  jobSchema: Schema;
  /** What the document begins as, and where that is from: `template:sweep_lr`, `from:JOB`, `again:EXPERIMENT`. */
  initial: string;
  source: string;
  /** The name of what it begins with, where that is no template. */
  from: string | undefined;
  view: DocumentView;
  /** Whether code for the base job is still being sent. */
  isSending: boolean;
  onView(view: DocumentView): void;
  onSource(source: string): void;
  onCreated(experimentId: string): void;
  jobForm(draft: ExperimentDraft): ReactNode;
}

/** Form and text are two views of one document; the plan beside them answers it as it is. */
export function CreateExperiment(props: Props) {
  const { schema, jobSchema, initial, source, from, view, isSending, onView, onSource, onCreated, jobForm } = props;
  const drafts = useDrafts("experiment");
  const [{ begun, former, restored, others }] = useState(() => ({
    begun: initial,
    former: source.startsWith("again:") ? parse(initial).value : undefined,
    restored: drafts.read(source),
    others: choicesFrom(drafts.list().filter((one) => one.source !== source)),
  }));
  const draft = useExperimentDraft(restored?.text ?? begun, schema);
  const kept = useKeeping(drafts, source, draft.text, begun);
  const { send, created, create } = useSending(draft, (id) => {
    kept.drop();
    onCreated(id);
  });
  const isTaken = create.error !== null && asApiError(create.error).code === "already_exists";
  const isNew = !isSameExperiment(draft.value, former);
  const refusal = useRoleRefusal("member");
  const [target, setTarget] = useState<Target | null>(null);
  const show = (pointer: string) => setTarget({ pointer });
  return (
    <>
      <LeaveGuard noun="experiment" isEdited={() => draft.text !== begun && !created.current} kept={kept} />
      <PageHeader
        title="New experiment"
        subtitle={from ? `Varies the spec of ${from}.` : "Edit as a form or as YAML; both stay in sync."}
      />
      {restored && draft.text !== begun && (
        <DraftNotice noun="experiment" at={restored.at} onStartOver={() => draft.setText(begun)} />
      )}
      {create.error && !isTaken && (
        <p className={classes.refused} role="alert">
          <ErrorText error={create.error} /> <code>{asApiError(create.error).code}</code>
        </p>
      )}
      <div className={classes.columns}>
        <DocumentPanel
          label="Experiment document"
          textLabel="Experiment as YAML"
          {...{ schema, draft, view, onView, target }}
          onTarget={setTarget}
          picker={<TemplateSelect templates={TEMPLATES} drafts={others} value={source} onChoose={onSource} />}
          form={
            <ExperimentForm
              schema={schema}
              jobSchema={jobSchema}
              value={draft.value}
              issues={draft.issues}
              onChange={draft.set}
              jobForm={jobForm(draft)}
            />
          }
        />
        <div className={classes.side}>
          <ExperimentPlanPanel draft={draft} onShow={show} />
        </div>
      </div>
      <SubmitBar
        verb={draft.trials ? `Start ${plural(draft.trials, "trial")}` : "Start"}
        refusal={refusal}
        problems={draft.problems}
        issues={draft.issues}
        isUnplanned={draft.planError !== null}
        isSending={isSending}
        ready={draft.startable}
        busy={create.isPending || Boolean(create.data)} // the next page may take a moment to come
        onSubmit={() => send(isNew)}
        onShow={show}
      />
      <Confirm
        opened={isTaken}
        title={`Replace the grid of ${String(at(draft.value, ["name"]))}?`}
        verb="Replace its grid"
        keep="Keep it"
        onConfirm={() => send(false)}
        onClose={create.reset}
      >
        There is an experiment of this project and name. {lossOfReplacing(draft.plan.data?.replaces ?? null)} To start
        another one, choose another name.
      </Confirm>
    </>
  );
}

/** One key for one text: what is sent again creates nothing twice. */
function useSending(draft: ExperimentDraft, onCreated: (id: string) => void) {
  const create = useStartExperiment();
  const created = useRef(false);
  const keyFor = useRef({ text: "", key: "" });
  const send = (isNew: boolean) => {
    if (keyFor.current.text !== draft.text) keyFor.current = { text: draft.text, key: newIdempotencyKey() };
    create.mutate(
      { spec: draft.value, idempotencyKey: keyFor.current.key, isNew },
      {
        onSuccess: (made) => {
          if (made === null) return;
          created.current = true;
          onCreated(made.id);
        },
      },
    );
  };
  return { send, created, create };
}
