import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { Panel, PanelStates } from "@/components/ui/Panel";
import { experimentSchemaQuery } from "@/features/experiments/api/create";
import { experimentQuery } from "@/features/experiments/api/experiments";
import { CreateExperiment } from "@/features/experiments/components/CreateExperiment";
import { at, combinedSchema, documentFrom } from "@/features/experiments/draft";
import { templateNamed } from "@/features/experiments/templates";
import type { ExperimentDraft } from "@/features/experiments/useExperimentDraft";
import { useSendFolder, type SendFolder } from "@/features/submit/api/code";
import { specOfJobQuery } from "@/features/submit/api/submit";
import { SpecForm } from "@/features/submit/components/SpecForm";
import { searchOf } from "@/lib/spec/choices";
import type { Schema } from "@/lib/spec/schema";
import { specSchemaQuery } from "@/lib/spec/query";
import { toYaml } from "@/lib/spec/yaml";

const route = getRouteApi("/shell/experiments/new");

export function NewExperimentPage() {
  const { from, again } = route.useSearch();
  const job = useQuery({ ...specOfJobQuery(from ?? ""), enabled: from !== undefined });
  const experiment = useQuery({
    ...experimentQuery(again ?? ""),
    enabled: again !== undefined,
    refetchInterval: false,
  });
  const source = from !== undefined ? job : experiment;
  if ((from !== undefined || again !== undefined) && source.data === undefined)
    return (
      <Panel label="Experiment document" flush>
        <PanelStates source={source} what="what to start from">
          {() => null}
        </PanelStates>
      </Panel>
    );
  if (from !== undefined)
    return <Create key={from} source={`from:${from}`} initial={documentFrom(job.data!)} from={job.data!.name} />;
  if (again !== undefined)
    return (
      <Create
        key={again}
        source={`again:${again}`}
        initial={toYaml(experiment.data!.spec)}
        from={experiment.data!.name}
      />
    );
  return <FromTemplate />;
}

function FromTemplate() {
  const template = templateNamed(route.useSearch().template);
  return <Create key={template.name} source={template.source} initial={template.text} />;
}

function Create({ source, initial, from }: { source: string; initial: string; from?: string }) {
  const { view = "form" } = route.useSearch();
  const navigate = route.useNavigate();
  const jobSchema = useQuery(specSchemaQuery);
  const sendFolder = useSendFolder();
  const experimentSchema = useQuery(experimentSchemaQuery);
  const schema = useMemo(
    () => experimentSchema.data && jobSchema.data && combinedSchema(experimentSchema.data, jobSchema.data),
    [experimentSchema.data, jobSchema.data],
  );
  if (!schema)
    return (
      <PanelStates
        source={experimentSchema.data ? jobSchema : experimentSchema}
        what="the experiment's schema"
        rows={8}
      >
        {() => null}
      </PanelStates>
    );
  return (
    <CreateExperiment
      schema={schema}
      jobSchema={jobSchema.data!}
      initial={initial}
      source={source}
      from={from}
      view={view}
      isSending={sendFolder.isPending}
      onView={(next) =>
        void navigate({ search: (old) => ({ ...old, view: next === "form" ? undefined : next }), replace: true })
      }
      onSource={(next) => void navigate({ search: { view: view === "form" ? undefined : view, ...searchOf(next) } })}
      onCreated={(experimentId) =>
        void navigate({ to: "/experiments/$experimentId", params: { experimentId }, search: {} })
      }
      jobForm={(draft) => <BaseJob schema={jobSchema.data!} draft={draft} sendFolder={sendFolder} />}
    />
  );
}

/** The base job's form: that of a job, at its place in the experiment's document. */
function BaseJob({ schema, draft, sendFolder }: { schema: Schema; draft: ExperimentDraft; sendFolder: SendFolder }) {
  const issues = draft.issues
    .filter(({ pointer }) => pointer.startsWith("/job/"))
    .map(({ pointer, message }) => ({ pointer: pointer.slice("/job".length), message }));
  return (
    <SpecForm
      schema={schema}
      value={at(draft.value, ["job"]) ?? {}}
      issues={issues}
      sendFolder={sendFolder}
      without={OF_THE_EXPERIMENT}
      onChange={(path, value) => draft.set(["job", ...path], value)}
    />
  );
}

/** What the trials have from the experiment. */
const OF_THE_EXPERIMENT = ["name", "project", "labels", "description"];
