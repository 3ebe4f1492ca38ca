import { useQuery } from "@tanstack/react-query";
import { PageHeader } from "@/components/ui/PageHeader";
import { meQuery } from "@/features/auth/api/session";
import { LargestJobs } from "@/features/storage/components/LargestJobs";
import { PolicyPanel, StoragePanel } from "@/features/storage/components/StoragePanel";

export function StoragePage() {
  const { data: me } = useQuery(meQuery);
  return (
    <>
      <PageHeader title="Storage" subtitle="What the coordinator stores about jobs, and for how long" />
      <div className="stack">
        <StoragePanel />
        <LargestJobs canChange={me?.role === "admin" || me?.role === "member"} />
        <PolicyPanel />
      </div>
    </>
  );
}
