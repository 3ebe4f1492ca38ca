import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { IconHourglassHigh, IconStack2 } from "@tabler/icons-react";
import { Notice, Verbatim } from "@/components/ui/Notice";
import type { Job } from "@/lib/types";
import { stacksQuery } from "../api/stacks";

/** A script that has fallen quiet: since when, which rank differs, and what becomes of it. */
export function HangNotice({ job, onStacks }: { job: Job; onStacks(): void }) {
  const { hang } = job;
  const client = useQueryClient();
  if (!hang) return null;
  const take = () => {
    void client.prefetchQuery(stacksQuery(job.id)); // What is under way is not asked for again; the panel shows its error.
    onStacks();
  };
  return (
    <Notice
      icon={IconHourglassHigh}
      label="Seems to hang"
      title="The job seems to hang"
      tone="warn"
      action={
        <Button size="compact-xs" variant="default" leftSection={<IconStack2 size={13} />} onClick={take}>
          Stacks
        </Button>
      }
    >
      <Verbatim>{hang.message}</Verbatim>
      <div className="muted">
        {hang.ends
          ? "Its ranks are being stopped, because the spec sets hang_seconds."
          : "Paceline leaves it as it is. This notice disappears with the next output or step. Set fault_tolerance.hang_seconds to have such a job restarted."}
      </div>
    </Notice>
  );
}
