import { Button, SegmentedControl, Select } from "@mantine/core";
import { useRef, type ReactNode } from "react";
import { LeaveGuard } from "@/components/ui/LeaveGuard";
import { PageHeader } from "@/components/ui/PageHeader";
import { Panel } from "@/components/ui/Panel";
import { YamlEditor } from "@/components/ui/YamlEditor";
import { newIdempotencyKey } from "@/lib/client";
import { asApiError } from "@/lib/errors";
import { plural } from "@/lib/format";
import type { Schema } from "@/lib/spec/schema";
import { useStartExperiment } from "../api/create";
import { TEMPLATES } from "../templates";
import { useExperimentDraft, type ExperimentDraft } from "../useExperimentDraft";
import { ExperimentForm } from "./ExperimentForm";
import classes from "./ExperimentForm.module.css";
import { ExperimentPlanPanel } from "./ExperimentPlanPanel";

export type CreateView = "form" | "yaml";

interface Props {
  /** Of the whole document, the base job included. */
  schema: Schema;
  jobSchema: Schema;
  initial: string;
  /** What it begins with, where that is no template. */
  from: string | undefined;
  template: string | undefined;
  view: CreateView;
  onView(view: CreateView): void;
  onTemplate(name: string): void;
  onCreated(experimentId: string): void;
  jobForm(draft: ExperimentDraft): ReactNode;
}

/** Form and text are two views of one document; the plan beside them answers it as it is. */
export function CreateExperiment(props: Props) {
  const { schema, jobSchema, initial, from, template, view, onView, onTemplate, onCreated, jobForm } = props;
  const draft = useExperimentDraft(initial, schema);
  const { send, created, create } = useSending(draft, onCreated);
  return (
    <>
      <LeaveGuard noun="experiment" isEdited={() => draft.text !== initial && !created.current} />
      <PageHeader
        title="New experiment"
        subtitle={from ? `Varies the spec of ${from}.` : "Edit as a form or as YAML; both stay in sync."}
        actions={
          <Button
            size="sm"
            className={classes.start}
            disabled={!draft.startable}
            loading={create.isPending}
            onClick={send}
          >
            {draft.trials ? `Start ${plural(draft.trials, "trial")}` : "Start"}
          </Button>
        }
      />
      {create.error && (
        <p className={classes.refused} role="alert">
          {asApiError(create.error).message} <code>{asApiError(create.error).code}</code>
        </p>
      )}
      <div className={classes.columns}>
        <Panel
          label="Experiment document"
          flush
          title={
            <SegmentedControl
              aria-label="Edit as"
              data={[
                { value: "form", label: "Form" },
                { value: "yaml", label: "YAML" },
              ]}
              value={view}
              onChange={(next) => onView(next as CreateView)}
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
              label="Experiment as YAML"
              text={draft.text}
              schema={schema}
              issues={draft.issues}
              problems={draft.problems}
              onChange={draft.setText}
            />
          ) : (
            <ExperimentForm
              schema={schema}
              jobSchema={jobSchema}
              value={draft.value}
              issues={draft.issues}
              onChange={draft.set}
              jobForm={jobForm(draft)}
            />
          )}
        </Panel>
        <div className={classes.side}>
          <ExperimentPlanPanel draft={draft} />
        </div>
      </div>
    </>
  );
}

/** One key for one text: what is sent again creates nothing twice. */
function useSending(draft: ExperimentDraft, onCreated: (id: string) => void) {
  const create = useStartExperiment();
  const created = useRef(false);
  const keyFor = useRef({ text: "", key: "" });
  const send = () => {
    if (keyFor.current.text !== draft.text) keyFor.current = { text: draft.text, key: newIdempotencyKey() };
    create.mutate(
      { spec: draft.value, idempotencyKey: keyFor.current.key },
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
