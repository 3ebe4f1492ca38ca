import { Button, Checkbox, TextInput } from "@mantine/core";
import { useState } from "react";
import { Guarded } from "@/components/ui/Guarded";
import { asApiError } from "@/lib/errors";
import { plural } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import type { RequestedGradients } from "@/lib/types";
import { useRecordGradients } from "../api/gradients";
import classes from "./Gradients.module.css";

interface Props {
  jobId: string;
  /** The newest request. */
  asked: RequestedGradients | null;
}

/** Has all ranks of a running job record their next step. */
export function NextStepForm({ jobId, asked }: Props) {
  const [names, setNames] = useState("*");
  const [snapshots, setSnapshots] = useState(false);
  const record = useRecordGradients(jobId);
  const patterns = names
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean);
  const ready = patterns.length > 0;
  const open = asked?.state === "open";
  return (
    <form
      className={classes.form}
      aria-label="Record the next step"
      onSubmit={(event) => {
        event.preventDefault();
        if (ready) record.mutate({ names: patterns, snapshots });
      }}
    >
      <TextInput
        label="Parameters"
        value={names}
        w={200}
        error={ready ? undefined : "such as blocks.0.*"}
        onChange={(event) => setNames(event.currentTarget.value)}
      />
      <Checkbox
        label="With snapshots"
        checked={snapshots}
        onChange={(event) => setSnapshots(event.currentTarget.checked)}
        mb={8}
      />
      <Guarded refused={useRoleRefusal("member")}>
        <Button type="submit" loading={record.isPending} disabled={open || !ready}>
          Record the next step
        </Button>
      </Guarded>
      <span role="status" className={classes.status}>
        {record.error ? asApiError(record.error).message : asked && stateOf(asked)}
      </span>
    </form>
  );
}

function stateOf({ state, ranks, answered }: RequestedGradients): string | null {
  switch (state) {
    case "open":
      return `Waiting for ${plural(ranks - answered, "rank")}`;
    case "missed":
      return "The ranks went apart before they had recorded the step.";
    default:
      return null;
  }
}
