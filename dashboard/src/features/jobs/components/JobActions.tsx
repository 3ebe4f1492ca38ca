import { Button } from "@mantine/core";
import { IconPlayerPause, IconPlayerPlay, IconX } from "@tabler/icons-react";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { asApiError } from "@/lib/errors";
import { canCancel, canPause, canResize, canResume, lossOfStopping } from "@/lib/jobs";
import { useRefusal } from "@/lib/ownership";
import type { Job } from "@/lib/types";
import { useJobControl } from "../api/control";
import { ResizeControl } from "./ResizeControl";
import classes from "./Jobs.module.css";

export function JobActions({ job }: { job: Job }) {
  const [confirming, setConfirming] = useState(false);
  const control = useJobControl(job);
  const refused = useRefusal(job);
  const busy = (name: string) => control.isPending && control.variables === name;
  const cancel = () => control.mutate("cancel", { onSuccess: () => setConfirming(false) });
  return (
    <>
      {control.error && !confirming && (
        <span className={classes.refusal} role="alert">
          {asApiError(control.error).message}
        </span>
      )}
      {canPause(job) && (
        <Button
          variant="default"
          leftSection={<IconPlayerPause size={14} />}
          loading={busy("pause")}
          onClick={() => control.mutate("pause")}
        >
          Pause
        </Button>
      )}
      {canResume(job) && (
        <Button
          leftSection={<IconPlayerPlay size={14} />}
          loading={busy("resume")}
          onClick={() => control.mutate("resume")}
        >
          Resume
        </Button>
      )}
      {canResize(job) && <ResizeControl job={job} />}
      {canCancel(job) && (
        <Button
          variant="default"
          leftSection={<IconX size={14} />}
          disabled={refused != null}
          title={refused ?? undefined}
          onClick={() => setConfirming(true)}
        >
          Cancel job
        </Button>
      )}
      <Confirm
        opened={confirming}
        title={`Cancel ${job.name}?`}
        verb="Cancel job"
        keep="Keep running"
        busy={busy("cancel")}
        error={control.error}
        onConfirm={cancel}
        onClose={() => setConfirming(false)}
      >
        The ranks of <strong>{job.name}</strong> are stopped and its slots are freed. A cancelled job cannot be resumed.{" "}
        {lossOfStopping(job)}
      </Confirm>
    </>
  );
}
