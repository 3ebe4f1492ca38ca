import { getRouteApi } from "@tanstack/react-router";
import { PageHeader } from "@/components/ui/PageHeader";
import { AuditPanel } from "@/features/people/components/AuditPanel";
import { KeysPanel } from "@/features/people/components/KeysPanel";
import { SecretsPanel } from "@/features/people/components/SecretsPanel";
import { SessionsPanel } from "@/features/people/components/SessionsPanel";
import { UsersPanel } from "@/features/people/components/UsersPanel";
import { useMe } from "@/lib/me";
import { PEOPLE_TABS } from "../search";
import { Tabs } from "./Tabs";

const route = getRouteApi("/shell/people");
const OWN_TABS = ["keys", "sessions"] as const;
const MEMBER_TABS = [...OWN_TABS, "secrets"] as const;

/** For admins everybody; for all others their own keys and sessions, for members the secrets of projects. */
export function PeoplePage() {
  const { tab, ...filter } = route.useSearch();
  const navigate = route.useNavigate();
  const role = useMe()?.role;
  const isAdmin = role === "admin";
  const tabs = isAdmin ? PEOPLE_TABS : role === "member" ? MEMBER_TABS : OWN_TABS;
  const chosen = tabs.find((each) => each === tab) ?? tabs[0];
  return (
    <>
      <PageHeader
        title="People"
        subtitle={
          isAdmin
            ? "Who may sign in, what each may do, what jobs may use, and who did what"
            : "Your API keys and signed-in browsers. Admins also see users and the audit here."
        }
      />
      <Tabs
        tabs={tabs}
        chosen={chosen}
        label="People"
        onChoose={(next) => void navigate({ search: { tab: next === tabs[0] ? undefined : next }, replace: true })}
      >
        {chosen === "users" && <UsersPanel />}
        {chosen === "keys" && <KeysPanel />}
        {chosen === "sessions" && <SessionsPanel />}
        {chosen === "secrets" && <SecretsPanel />}
        {chosen === "audit" && (
          <AuditPanel
            filter={filter}
            onFilter={(next) => void navigate({ search: { tab: "audit", ...next }, replace: true, resetScroll: false })}
          />
        )}
      </Tabs>
    </>
  );
}
