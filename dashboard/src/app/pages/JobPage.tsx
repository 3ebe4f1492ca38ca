import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { PageHeader } from "@/components/ui/PageHeader";
import { Panel, PanelStates } from "@/components/ui/Panel";
import { incidentsQuery } from "@/features/incidents/api/incidents";
import { JobHeader } from "@/features/jobs/components/JobHeader";
import { useMetricsFeed, type MetricsFeed } from "@/features/metrics/useMetricsFeed";
import { useStoreVersion } from "@/features/metrics/useStoreVersion";
import { jobQuery, PROGRESS_INTERVAL_MS } from "@/lib/jobQuery";
import { isTerminal } from "@/lib/jobs";
import type { Incident, Job, JobProgress } from "@/lib/types";
import { TABS, type JobSearch } from "../search";
import { JobNotices } from "./JobNotices";
import { JobTabContent } from "./JobTabContent";
import { Tabs } from "./Tabs";

const route = getRouteApi("/shell/jobs/$jobId");

export function JobPage() {
  const { jobId } = route.useParams();
  const query = useQuery(jobQuery(jobId));
  return query.data ? (
    <>
      {query.error ? (
        <Panel label="Job" flush>
          <PanelStates source={query} what="this job">
            {() => null}
          </PanelStates>
        </Panel>
      ) : null}
      <JobView key={jobId} job={query.data} readAt={query.dataUpdatedAt} />
    </>
  ) : (
    <>
      <PageHeader
        title="Job"
        before={
          <Link to="/jobs" className="back">
            Jobs
          </Link>
        }
      />
      <Panel label="Job" flush>
        <PanelStates source={query} what="this job" rows={8}>
          {() => null}
        </PanelStates>
      </Panel>
    </>
  );
}

function JobView({ job, readAt }: { job: Job; readAt: number }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const live = !isTerminal(job.state);
  const { from, to, rank = 0 } = search;
  const range = from !== undefined && to !== undefined && from < to ? { from, to } : null;
  // A paused job brings nothing new until it is resumed.
  const feed = useMetricsFeed({ jobId: job.id, range, rank }, live && job.state !== "paused");
  // What arrives after the end changes the job's numbers too.
  useQuery({ ...jobQuery(job.id), refetchInterval: feed.arriving && !live && PROGRESS_INTERVAL_MS });
  const change = (part: Partial<JobSearch>, { replace = true } = {}) =>
    void navigate({ search: { ...search, ...part }, replace, resetScroll: false });
  const incidentLog = useQuery(incidentsQuery(job.id));
  const incidents = incidentLog.data ?? NONE;
  return (
    <>
      <JobHeader
        job={job}
        progress={useLiveProgress(job, feed)}
        readAt={readAt}
        notices={
          <JobNotices
            job={job}
            incidents={incidents}
            readAt={incidentLog.dataUpdatedAt}
            onStacks={() => change({ tab: "ranks" })}
          />
        }
      />
      <Tabs
        tabs={TABS}
        chosen={search.tab ?? "curves"}
        label="Job views"
        counts={{ incidents: incidents.length }}
        onChoose={(tab) => change({ tab: tab === "curves" ? undefined : tab })}
      >
        <JobTabContent tab={search.tab ?? "curves"} {...{ job, incidents, feed, search, change, live }} />
      </Tabs>
    </>
  );
}

const NONE: readonly Incident[] = [];

/** The job's progress, its step and loss as fresh as the stream. Rates are the coordinator's: those of a single step jump. */
function useLiveProgress(job: Job, feed: MetricsFeed): JobProgress {
  const store = feed.query.data;
  useStoreVersion(store);
  const latest = store?.latest;
  if (!latest || latest.generation < job.generation || latest.step < job.progress.step) return job.progress;
  return { ...job.progress, step: latest.step, loss: latest.values.loss ?? job.progress.loss };
}
