import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { stringify } from "yaml";
import { Panel, PanelStates } from "@/components/ui/Panel";
import { specOfJobQuery } from "@/features/submit/api/submit";
import { SubmitForm } from "@/features/submit/components/SubmitForm";
import { templateNamed } from "@/features/submit/templates";
import { searchOf } from "@/lib/spec/choices";
import { specSchemaQuery } from "@/lib/spec/query";

const route = getRouteApi("/shell/jobs/new");

export function SubmitPage() {
  const { view = "form", template, from } = route.useSearch();
  const navigate = route.useNavigate();
  const schema = useQuery(specSchemaQuery);
  const source = useQuery({ ...specOfJobQuery(from ?? ""), enabled: from !== undefined });
  const initial =
    from === undefined
      ? templateNamed(template).text
      : source.data && stringify(source.data.spec ?? source.data.stored_spec);
  if (initial === undefined)
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
          initial={initial}
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
