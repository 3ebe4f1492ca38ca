import { Button } from "@mantine/core";
import { useId } from "react";
import type { Issue } from "@/lib/spec/schema";
import { Guarded } from "./Guarded";
import classes from "./Document.module.css";

interface Props {
  verb: string;
  /** Why the coordinator would refuse it to this user; null where it would not. */
  refusal: string | null;
  /** Of the text and of the fields. */
  problems: readonly unknown[];
  issues: readonly Issue[];
  /** Whether the coordinator could not be asked for the plan. */
  isUnplanned: boolean;
  /** Whether a folder with code is on its way, which the document lacks until it is there. */
  isSending: boolean;
  ready: boolean;
  busy: boolean;
  onSubmit(): void;
  onShow(pointer: string): void;
}

/** The button that submits a document, and why it cannot be pressed: both stay in sight however long the form is. */
export function SubmitBar({ verb, busy, ready, onSubmit, onShow, ...state }: Props) {
  const id = useId();
  const reason = whyNot(state);
  const first = state.refusal === null ? state.issues.find(({ pointer }) => pointer !== "") : undefined;
  return (
    <div className={classes.bar}>
      <span id={id} className={classes.reason} role="status">
        {reason}
        {first && (
          <>
            {" "}
            <button type="button" className={classes.link} onClick={() => onShow(first.pointer)}>
              {state.issues.length === 1 ? "Go to the field" : "Go to the first"}
            </button>
          </>
        )}
      </span>
      <Guarded refused={state.refusal}>
        <Button
          size="sm"
          className={classes.submit}
          disabled={!ready || reason !== null}
          loading={busy}
          aria-describedby={reason === null ? undefined : id}
          onClick={onSubmit}
        >
          {verb}
        </Button>
      </Guarded>
    </div>
  );
}

function whyNot({
  refusal,
  problems,
  issues,
  isUnplanned,
  isSending,
}: Pick<Props, "refusal" | "problems" | "issues" | "isUnplanned" | "isSending">) {
  if (refusal !== null) return refusal;
  const wrong = problems.length + issues.length;
  if (wrong > 0) return wrong === 1 ? "Fix the problem first." : `Fix ${wrong} problems first.`;
  if (isSending) return "The folder with the code is still being sent.";
  return isUnplanned ? "There is no plan yet: the Plan panel says why." : null;
}
