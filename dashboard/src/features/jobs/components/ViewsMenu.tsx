import { ActionIcon, Button, Divider, Group, Popover, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconBookmark, IconTrash } from "@tabler/icons-react";
import { useState } from "react";
import { Guarded } from "@/components/ui/Guarded";
import { VIEW_NAME } from "@/lib/constants.generated";
import { asApiError } from "@/lib/errors";
import { useMe } from "@/lib/me";
import { useRefusal, useRoleRefusal } from "@/lib/ownership";
import type { SavedView } from "@/lib/types";
import { savedViewsQuery, useDeleteView, useSaveView } from "../api/views";
import classes from "./JobFilters.module.css";

interface Props {
  /** The present view, as it would be saved. */
  query: string;
  onChoose(query: string): void;
}

/** Views that everybody sees, and a way to save the present one. */
export function ViewsMenu({ query, onChoose }: Props) {
  const [opened, setOpened] = useState(false);
  const { data: views = [] } = useQuery(savedViewsQuery);
  const chosen = views.find((view) => view.query === query);
  return (
    <Popover opened={opened} onChange={setOpened} width={290} position="bottom-end" trapFocus hideDetached={false}>
      <Popover.Target>
        <Button variant="default" leftSection={<IconBookmark size={14} />} onClick={() => setOpened(!opened)}>
          {chosen?.name ?? "Views"}
        </Button>
      </Popover.Target>
      <Popover.Dropdown aria-label="Saved views">
        {views.length === 0 ? (
          <Text size="sm" c="var(--muted)">
            No saved views yet. Set filters, order and columns, then save them under a name. Everybody sees it.
          </Text>
        ) : (
          <div className={classes.views}>
            {views.map((view) => (
              <ViewItem
                key={view.name}
                view={view}
                current={view === chosen}
                onChoose={() => {
                  onChoose(view.query);
                  setOpened(false);
                }}
              />
            ))}
          </div>
        )}
        <Divider my="sm" />
        <SaveForm query={query} views={views} onSaved={() => setOpened(false)} />
      </Popover.Dropdown>
    </Popover>
  );
}

function ViewItem({ view, current, onChoose }: { view: SavedView; current: boolean; onChoose(): void }) {
  const refused = useRefusal(view, "view");
  const deletion = useDeleteView();
  return (
    <div className={classes.view}>
      <Button
        variant={current ? "light" : "subtle"}
        color={current ? undefined : "gray"}
        justify="flex-start"
        className={classes.viewName}
        title={`Saved by ${view.created_by}`}
        aria-current={current || undefined}
        onClick={onChoose}
      >
        {view.name}
      </Button>
      {refused === null && (
        <ActionIcon
          variant="subtle"
          color="gray"
          aria-label={`Delete view ${view.name}`}
          loading={deletion.isPending}
          onClick={() => deletion.mutate(view.name)}
        >
          <IconTrash size={14} />
        </ActionIcon>
      )}
    </div>
  );
}

/** Why no view can have this name; null where one can, or nothing is typed yet. */
function nameProblem(name: string): string | null {
  if (name === "" || new RegExp(VIEW_NAME.pattern, "u").test(name)) return null;
  return `Invalid name ${JSON.stringify(name)}: ${VIEW_NAME.rule}`;
}

interface SaveProps {
  query: string;
  views: readonly SavedView[];
  onSaved(): void;
}

function SaveForm({ query, views, onSaved }: SaveProps) {
  const [typed, setTyped] = useState("");
  const name = typed.trim();
  const problem = nameProblem(name);
  const saving = useSaveView();
  const refused = useRoleRefusal("member");
  const me = useMe();
  const theirs = views.find((view) => view.name === name && view.created_by_id !== me?.user_id);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (problem === null) saving.mutate({ name, query }, { onSuccess: onSaved });
      }}
    >
      <Group gap="xs" align="flex-end" wrap="nowrap">
        <TextInput
          label="Save this view as"
          placeholder="Failed this week"
          description={theirs && `This replaces the view of ${theirs.created_by}.`}
          value={typed}
          maxLength={64}
          disabled={refused !== null}
          error={problem ?? (saving.error ? asApiError(saving.error).message : null)}
          onChange={(event) => {
            setTyped(event.currentTarget.value);
            saving.reset();
          }}
        />
        <Guarded refused={refused}>
          <Button type="submit" disabled={name === "" || problem !== null} loading={saving.isPending}>
            {theirs ? "Replace" : "Save"}
          </Button>
        </Guarded>
      </Group>
    </form>
  );
}
