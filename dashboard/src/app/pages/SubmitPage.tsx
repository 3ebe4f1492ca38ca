import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { Panel, PanelStates } from "@/components/ui/Panel";
import { specOfJobQuery } from "@/features/submit/api/submit";
import { SubmitForm } from "@/features/submit/components/SubmitForm";
import { templateNamed } from "@/features/submit/templates";
import { searchOf } from "@/lib/spec/choices";
import { specSchemaQuery } from "@/lib/spec/query";
import type { Schema } from "@/lib/spec/schema";
import { withoutUnset } from "@/lib/spec/unset";
import { toYaml } from "@/lib/spec/yaml";
import type { Job } from "@/lib/types";

const route = getRouteApi("/shell/jobs/new");

export function SubmitPage() {
  const { view = "form", template, from } = route.useSearch();
  const navigate = route.useNavigate();
  const schema = useQuery(specSchemaQuery);
  const source = useQuery({ ...specOfJobQuery(from ?? ""), enabled: from !== undefined });
  if (from !== undefined && source.data === undefined)
    return (
      <Panel label="Job document" flush>
        <PanelStates source={source} what="the job to start from">
          {() => null}
        </PanelStates>
      </Panel>
    );
  return (
    <PanelStates source={schema} what="the job schema" rows={8}>
      {(loaded) => (
        <SubmitForm
          key={from ?? template ?? ""}
          schema={loaded}
          initial={from === undefined ? templateNamed(template).text : textOf(source.data!, loaded)}
          source={from === undefined ? templateNamed(template).source : `from:${from}`}
          view={view}
          onView={(next) =>
            void navigate({ search: (old) => ({ ...old, view: next === "form" ? undefined : next }), replace: true })
          }
          onSource={(source) =>
            void navigate({ search: { view: view === "form" ? undefined : view, ...searchOf(source) } })
          }
          onSubmitted={(jobId) => void navigate({ to: "/jobs/$jobId", params: { jobId }, search: {} })}
        />
      )}
    </PanelStates>
  );
}

/** A job's spec has every default filled in: what is null there would only hide what was chosen. */
function textOf({ spec, stored_spec }: Job, schema: Schema): string {
  return toYaml(withoutUnset(schema, spec ?? stored_spec));
}
