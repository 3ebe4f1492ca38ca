import { Link, useRouter, type ErrorComponentProps } from "@tanstack/react-router";
import { EmptyState, ErrorState } from "@/components/ui/Panel";

export function NotFound() {
  return <EmptyState title="There is no such page" action={<Link to="/jobs">Go to the jobs</Link>} />;
}

export function RouteError({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  const retry = () => {
    reset();
    void router.invalidate();
  };
  return <ErrorState error={error} what="this page" onRetry={retry} />;
}
