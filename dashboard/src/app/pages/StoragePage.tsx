import { PageHeader } from "@/components/ui/PageHeader";
import { LargestJobs } from "@/features/storage/components/LargestJobs";
import { PolicyPanel, StoragePanel } from "@/features/storage/components/StoragePanel";

export function StoragePage() {
  return (
    <>
      <PageHeader title="Storage" subtitle="What the coordinator stores about jobs, and for how long" />
      <div className="stack">
        <StoragePanel />
        <LargestJobs />
        <PolicyPanel />
      </div>
    </>
  );
}
