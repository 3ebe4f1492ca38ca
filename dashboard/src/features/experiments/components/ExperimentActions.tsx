import { Button } from "@mantine/core";
import { IconPlayerPause, IconPlayerPlay, IconX } from "@tabler/icons-react";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { useRefusal, useRoleRefusal } from "@/lib/ownership";
import type { Experiment } from "@/lib/types";
import { useExperimentControl } from "../api/control";
import { canCancel, canPause, canResume, lossOfCancelling, lossOfPausing } from "../experiments";
import classes from "./Experiments.module.css";

/** Pause and cancel ask first, and name what they cost; resume costs nothing. */
export function ExperimentActions({ experiment }: { experiment: Experiment }) {
  const [asking, setAsking] = useState<"pause" | "cancel" | null>(null);
  const control = useExperimentControl(experiment.id);
  const { id, name } = experiment.created_by;
  const refused = useRefusal({ created_by: name, created_by_id: id }, "experiment");
  const refusedToRole = useRoleRefusal("member");
  const ask = (what: "pause" | "cancel") => {
    control.reset();
    setAsking(what);
  };
  const send = (what: "pause" | "cancel") => control.mutate(what, { onSuccess: () => setAsking(null) });
  const dialog = { busy: control.isPending, error: control.error, onClose: () => setAsking(null) };
  return (
    <>
      {control.error && asking === null && (
        <span className={classes.refused} role="alert">
          <ErrorText error={control.error} />
        </span>
      )}
      {canPause(experiment) && (
        <Guarded refused={refusedToRole}>
          <Button variant="default" leftSection={<IconPlayerPause size={14} />} onClick={() => ask("pause")}>
            Pause
          </Button>
        </Guarded>
      )}
      {canResume(experiment) && (
        <Guarded refused={refusedToRole}>
          <Button
            leftSection={<IconPlayerPlay size={14} />}
            loading={control.isPending}
            onClick={() => control.mutate("resume")}
          >
            Resume
          </Button>
        </Guarded>
      )}
      {canCancel(experiment) && (
        <Guarded refused={refused}>
          <Button variant="default" leftSection={<IconX size={14} />} onClick={() => ask("cancel")}>
            Cancel experiment
          </Button>
        </Guarded>
      )}
      <Confirm
        {...dialog}
        opened={asking === "pause"}
        title={`Pause ${experiment.name}?`}
        verb="Pause experiment"
        keep="Keep running"
        onConfirm={() => send("pause")}
      >
        No further trial of <strong>{experiment.name}</strong> starts. {lossOfPausing(experiment.trials)}
      </Confirm>
      <Confirm
        {...dialog}
        opened={asking === "cancel"}
        title={`Cancel ${experiment.name}?`}
        verb="Cancel experiment"
        keep="Keep it"
        onConfirm={() => send("cancel")}
      >
        {lossOfCancelling(experiment.trials)} A cancelled experiment cannot be resumed; the same grid posted again runs
        what is missing.
      </Confirm>
    </>
  );
}
