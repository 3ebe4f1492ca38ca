import { getRouteApi } from "@tanstack/react-router";
import { PageHeader } from "@/components/ui/PageHeader";
import { ModelsPanel } from "@/features/models/components/ModelsPanel";
import { RegisterDialog } from "@/features/models/components/RegisterDialog";

const route = getRouteApi("/shell/models");

export function ModelsPage() {
  const source = route.useSearch();
  const navigate = route.useNavigate();
  const wanted = source.checkpoint !== undefined || (source.job !== undefined && source.path !== undefined);
  return (
    <>
      <PageHeader title="Models" subtitle="Checkpoints and files that were registered, by version and alias" />
      <ModelsPanel />
      {wanted && <RegisterDialog source={source} onClose={() => void navigate({ search: {}, replace: true })} />}
    </>
  );
}
