import { SegmentedControl } from "@mantine/core";
import { lazy, Suspense, useEffect, useRef, useState, type ReactNode } from "react";
import { LoadingState, Panel } from "@/components/ui/Panel";
import { focusField } from "@/lib/spec/fields";
import type { Issue, Schema } from "@/lib/spec/schema";
import classes from "./Document.module.css";

// The editor is larger than everything else on the page, and most people stay with the form.
const YamlEditor = lazy(async () => ({ default: (await import("./YamlEditor")).YamlEditor }));

export type DocumentView = "form" | "yaml";

/** A place in the document that was asked for; asked again, it is another object. */
export interface Target {
  pointer: string;
}

interface Props {
  label: string;
  /** Of the document as text. */
  textLabel: string;
  schema: Schema;
  draft: {
    text: string;
    value: unknown;
    problems: readonly { from: number; to: number; message: string }[];
    issues: readonly Issue[];
    setText(text: string): void;
  };
  view: DocumentView;
  onView(view: DocumentView): void;
  target: Target | null;
  onTarget(target: Target | null): void;
  picker: ReactNode;
  form: ReactNode;
}

/** One document in two views, a form and its text; a target gets the focus in the view that shows it. */
export function DocumentPanel({
  label,
  textLabel,
  schema,
  draft,
  view,
  onView,
  target,
  onTarget,
  picker,
  form,
}: Props) {
  const root = useRef<HTMLDivElement>(null);
  const isUnreadable = draft.value === undefined;
  const asText = view === "yaml" || isUnreadable;
  /** The text for which the form was asked for, and which it cannot show. */
  const [refused, setRefused] = useState<string | null>(null);
  const choose = (next: DocumentView) => {
    onTarget(null);
    if (next === "form" && isUnreadable) return setRefused(draft.text);
    setRefused(null);
    onView(next);
  };
  useEffect(() => {
    if (target && !asText && !focusField(root.current!, target.pointer)) onView("yaml");
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the focus moves when a place is asked for, and at no other time
  }, [target]);
  return (
    <Panel
      label={label}
      flush
      title={
        <SegmentedControl
          aria-label="Edit as"
          data={[
            { value: "form", label: "Form" },
            { value: "yaml", label: "YAML" },
          ]}
          value={asText ? "yaml" : "form"}
          onChange={(next) => choose(next as DocumentView)}
        />
      }
      actions={picker}
    >
      <div ref={root} className={asText ? classes.text : undefined}>
        {refused === draft.text && isUnreadable && (
          <p className={classes.refused} role="alert">
            Fix the YAML first: {draft.problems[0]?.message}.
          </p>
        )}
        {asText ? (
          <Suspense fallback={<LoadingState rows={12} what="the editor" />}>
            <YamlEditor
              label={textLabel}
              text={draft.text}
              schema={schema}
              issues={draft.issues}
              problems={draft.problems}
              target={target}
              onChange={draft.setText}
            />
          </Suspense>
        ) : (
          form
        )}
      </div>
    </Panel>
  );
}
