import { Link, useRouter, type ErrorComponentProps } from "@tanstack/react-router";
import { PageHeader } from "@/components/ui/PageHeader";
import { ErrorState } from "@/components/ui/Panel";
import { isMissingPart } from "../missingParts";

export function NotFound() {
  return (
    <>
      <PageHeader title="Page not found" subtitle="The address may be mistyped, or the page has moved." />
      <Link to="/jobs">Back to jobs</Link>
    </>
  );
}

export function RouteError({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  const retry = () => {
    if (isMissingPart(error)) return window.location.reload(); // the browser remembers that it failed
    reset();
    void router.invalidate();
  };
  return <ErrorState error={error} what="this page" onRetry={retry} />;
}
