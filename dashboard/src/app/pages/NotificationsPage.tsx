import { getRouteApi } from "@tanstack/react-router";
import { PageHeader } from "@/components/ui/PageHeader";
import { ChannelsPanel } from "@/features/notifications/components/ChannelsPanel";
import { DeliveriesPanel } from "@/features/notifications/components/DeliveriesPanel";
import { RulesPanel } from "@/features/notifications/components/RulesPanel";

const route = getRouteApi("/shell/notifications");

export function NotificationsPage() {
  const { channel } = route.useSearch();
  const navigate = route.useNavigate();
  return (
    <>
      <PageHeader title="Notifications" subtitle="Messages by webhook, Slack or e-mail, and whether they arrived" />
      <div className="stack">
        <ChannelsPanel />
        <RulesPanel />
        <DeliveriesPanel
          channel={channel}
          onChannel={(next) => void navigate({ search: { channel: next }, replace: true, resetScroll: false })}
        />
      </div>
    </>
  );
}
