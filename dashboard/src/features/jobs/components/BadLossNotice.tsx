import { IconAlertTriangle } from "@tabler/icons-react";
import { Notice } from "@/components/ui/Notice";
import { count, sentence } from "@/lib/format";
import type { Job } from "@/lib/types";

const SPOILT = "The weights after that step are unusable.";
const KEPT = "The last checkpoint from before that step is kept. You can restore it into a new job.";
const OF_SCRIPT = "The script may have its own checkpoint from before that step. Paceline keeps none for scripts.";
const FINITE_AGAIN = "Unless the script left out that update, the weights after it are unusable.";

/** A loss that is NaN, infinite or a spike: what was done, and the samples of that step. */
export function BadLossNotice({ job }: { job: Job }) {
  const { not_finite_step: spoilt, bad_loss: bad } = job.progress;
  if (spoilt == null && bad == null) return null;
  const script = job.spec?.script != null;
  const finiteAgain = script && typeof job.progress.loss === "number";
  const isSpike = spoilt == null && bad?.kind === "spike";
  return (
    <Notice
      icon={IconAlertTriangle}
      label={isSpike ? "Spike of the loss" : "Loss not finite"}
      title={
        spoilt == null
          ? sentence(bad!.what)
          : `The loss ${finiteAgain ? "was not finite at" : "is not finite since"} step ${count(spoilt)}`
      }
      tone={spoilt != null || bad?.act === "stop" ? "bad" : "warn"}
    >
      <div className="muted">
        {spoilt == null
          ? `${sentence(bad!.done)}.`
          : `${finiteAgain ? FINITE_AGAIN : SPOILT} ${script ? OF_SCRIPT : KEPT}`}
      </div>
      {bad && bad.sample_ids.length > 0 && <div className="muted">{samplesOf(bad)}</div>}
    </Notice>
  );
}

function samplesOf({ step, sample_ids, samples }: NonNullable<Job["progress"]["bad_loss"]>): string {
  const more = samples - sample_ids.length;
  return `Samples in step ${count(step)}: ${sample_ids.join(", ")}${more > 0 ? ` and ${count(more)} more` : ""}.`;
}
