import { IncidentNotice } from "@/features/incidents/components/IncidentNotice";
import { faultBehind, headline, isOpen } from "@/features/incidents/incidents";
import { BadLossNotice } from "@/features/jobs/components/BadLossNotice";
import { DataRemovedNotice } from "@/features/jobs/components/DataRemovedNotice";
import { FailurePanel } from "@/features/jobs/components/FailurePanel";
import { PendingPanel } from "@/features/jobs/components/PendingPanel";
import { SilentNodesNotice } from "@/features/jobs/components/SilentNodesNotice";
import { SmallWorldNotice } from "@/features/jobs/components/SmallWorldNotice";
import { TimeLimitNotice } from "@/features/jobs/components/TimeLimitNotice";
import { UnreadableNotice } from "@/features/jobs/components/UnreadableNotice";
import { HangNotice } from "@/features/stacks/components/HangNotice";
import { isTerminal, smallWorld } from "@/lib/jobs";
import type { Incident, Job } from "@/lib/types";

/** What must be known before any number: why the job ended, what it recovers from, why it waits. */
export function JobNotices({
  job,
  incidents,
  readAt,
  onStacks,
}: {
  job: Job;
  incidents: readonly Incident[];
  readAt: number;
  onStacks(): void;
}) {
  const ended = job.state === "failed";
  const underWay = incidents.find(isOpen);
  const failure = ended || (!isTerminal(job.state) && !underWay) ? job.failure : null;
  const last = incidents.at(-1);
  const fault = faultBehind(incidents, job);
  return (
    <>
      <DataRemovedNotice job={job} />
      <BadLossNotice job={job} />
      <SilentNodesNotice job={job} />
      <HangNotice job={job} onStacks={onStacks} />
      <TimeLimitNotice job={job} />
      {failure && (
        <FailurePanel
          jobId={job.id}
          failure={failure}
          ended={ended}
          outcome={last?.action === "gave_up" ? last.why : undefined}
        />
      )}
      {underWay && <IncidentNotice incident={underWay} readAt={readAt} />}
      <UnreadableNotice job={job} />
      {!underWay && <SmallWorldNotice job={job} fault={fault && headline(fault)} />}
      {job.pending && smallWorld(job) === null && <PendingPanel reason={job.pending} />}
    </>
  );
}
