import { Button, Group } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlus } from "@tabler/icons-react";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Guarded } from "@/components/ui/Guarded";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { dateTime } from "@/lib/format";
import { useMe } from "@/lib/me";
import { useRoleRefusal } from "@/lib/ownership";
import type { Me, NotificationRule } from "@/lib/types";
import { channelsQuery, rulesQuery, useDeleteRule } from "../api/notifications";
import { RuleDialog } from "./RuleDialog";

/** Which facts are sent where. Members make rules about their own jobs. */
export function RulesPanel() {
  const query = useQuery(rulesQuery);
  const channels = useQuery(channelsQuery).data;
  const me = useMe();
  const refused = useRoleRefusal("member");
  const [adding, setAdding] = useState(false);
  const [changing, setChanging] = useState<NotificationRule | null>(null);
  const [deleting, setDeleting] = useState<NotificationRule | null>(null);
  const usable = (channels ?? []).filter(({ for_members: all }) => all || me?.role === "admin");
  const add = (
    <Guarded refused={refused ?? (channels && usable.length === 0 ? "There is no channel that you may use." : null)}>
      <Button leftSection={<IconPlus size={14} />} onClick={() => setAdding(true)}>
        New rule
      </Button>
    </Guarded>
  );
  return (
    <Panel title="Rules" actions={add} flush>
      <PanelStates
        source={query}
        what="the rules"
        isEmpty={(rules) => rules.length === 0}
        empty={
          <EmptyState title="No rules">A rule says what is sent to a channel. Without one, nothing is sent.</EmptyState>
        }
      >
        {(rules) => (
          <DataTable
            stacks
            label="Rules"
            rows={rules}
            columns={columns(me, setChanging, setDeleting)}
            rowId={({ id }) => id}
          />
        )}
      </PanelStates>
      {adding && <RuleDialog channels={usable} onClose={() => setAdding(false)} />}
      {changing && <RuleDialog channels={usable} rule={changing} onClose={() => setChanging(null)} />}
      {deleting && <DeleteDialog rule={deleting} onClose={() => setDeleting(null)} />}
    </Panel>
  );
}

function refusalOf(me: Me | null | undefined, rule: NotificationRule): string | null {
  if (me == null || me.role === "admin" || (me.role === "member" && rule.created_by_id === me.user_id)) return null;
  return `This is ${rule.created_by}'s rule: only ${rule.created_by} or an admin may change it.`;
}

type OnRule = (rule: NotificationRule) => void;

function columns(me: Me | null | undefined, onChange: OnRule, onDelete: OnRule): Column<NotificationRule>[] {
  return [
    {
      id: "channel",
      header: "Channel",
      cell: (rule) => rule.channel_name,
      value: ({ channel_name: name }) => name,
    },
    { id: "text", header: "Sends", prose: true, width: 380, cell: ({ text }) => text },
    { id: "by", header: "Made by", cell: (rule) => rule.created_by, value: (rule) => rule.created_by },
    { id: "at", header: "Made", cell: (rule) => dateTime(rule.created_at), value: (rule) => rule.created_at },
    {
      id: "actions",
      header: "",
      numeric: true,
      cell: (rule) => (
        <Group gap="xs" justify="flex-end" wrap="nowrap">
          {(["Change", "Delete"] as const).map((verb) => (
            <Guarded key={verb} refused={refusalOf(me, rule)}>
              <Button
                size="compact-xs"
                variant="default"
                onClick={() => (verb === "Change" ? onChange(rule) : onDelete(rule))}
                aria-label={`${verb} the rule ${rule.text} of ${rule.channel_name}`}
              >
                {verb}
              </Button>
            </Guarded>
          ))}
        </Group>
      ),
    },
  ];
}

function DeleteDialog({ rule, onClose }: { rule: NotificationRule; onClose(): void }) {
  const remove = useDeleteRule();
  return (
    <Confirm
      opened
      title="Delete this rule?"
      verb="Delete rule"
      busy={remove.isPending}
      error={remove.error}
      onClose={onClose}
      onConfirm={() => remove.mutate(rule.id, { onSuccess: onClose })}
    >
      <strong>{rule.channel_name}</strong> is not told of this any more: {rule.text}.
    </Confirm>
  );
}
