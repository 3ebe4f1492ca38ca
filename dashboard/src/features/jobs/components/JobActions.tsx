import { Button } from "@mantine/core";
import { IconArchive, IconArchiveOff, IconPlayerPause, IconPlayerPlay, IconX } from "@tabler/icons-react";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { asApiError } from "@/lib/errors";
import { canCancel, canPause, canResize, canResume, isTerminal, lossOfStopping } from "@/lib/jobs";
import { useRefusal, useRoleRefusal } from "@/lib/ownership";
import type { Job } from "@/lib/types";
import { useJobControl } from "../api/control";
import { useJobChanges } from "../api/edits";
import { ResizeControl } from "./ResizeControl";
import classes from "./Jobs.module.css";

/** Puts an ended job out of sight, or brings it back. */
function ArchiveButton({ job }: { job: Job }) {
  const work = useJobChanges();
  const refused = useRoleRefusal("member");
  const kind = job.archived_at ? "unarchive" : "archive";
  const message = work.error ? asApiError(work.error).message : work.data?.[0]?.message;
  return (
    <>
      {message && (
        <span className={classes.refusal} role="alert">
          {message}
        </span>
      )}
      <Guarded refused={refused}>
        <Button
          variant="default"
          leftSection={job.archived_at ? <IconArchiveOff size={14} /> : <IconArchive size={14} />}
          loading={work.isPending}
          onClick={() => work.mutate({ jobs: [job], change: { kind } })}
        >
          {job.archived_at ? "Unarchive" : "Archive"}
        </Button>
      </Guarded>
    </>
  );
}

export function JobActions({ job }: { job: Job }) {
  const [confirming, setConfirming] = useState(false);
  const control = useJobControl(job);
  const refused = useRefusal(job);
  const refusedToRole = useRoleRefusal("member");
  const busy = (name: string) => control.isPending && control.variables === name;
  const cancel = () => control.mutate("cancel", { onSuccess: () => setConfirming(false) });
  return (
    <>
      {control.error && !confirming && (
        <span className={classes.refusal} role="alert">
          <ErrorText error={control.error} />
        </span>
      )}
      {canPause(job) && (
        <Guarded refused={refusedToRole}>
          <Button
            variant="default"
            leftSection={<IconPlayerPause size={14} />}
            loading={busy("pause")}
            onClick={() => control.mutate("pause")}
          >
            Pause
          </Button>
        </Guarded>
      )}
      {canResume(job) && (
        <Guarded refused={refusedToRole}>
          <Button
            leftSection={<IconPlayerPlay size={14} />}
            loading={busy("resume")}
            onClick={() => control.mutate("resume")}
          >
            Resume
          </Button>
        </Guarded>
      )}
      {canResize(job) && <ResizeControl job={job} />}
      {canCancel(job) && (
        <Guarded refused={refused}>
          <Button variant="default" leftSection={<IconX size={14} />} onClick={() => setConfirming(true)}>
            Cancel job
          </Button>
        </Guarded>
      )}
      {isTerminal(job.state) && <ArchiveButton job={job} />}
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
