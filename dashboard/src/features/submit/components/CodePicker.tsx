import { Button, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { EmptyState, PanelStates } from "@/components/ui/Panel";
import { age, bytes, dateTime, plural } from "@/lib/format";
import { useServerNow } from "@/lib/useNow";
import { earlierCodeQuery, type EarlierCode } from "../api/code";
import { originOf } from "../code";
import classes from "./CodePicker.module.css";

interface Props {
  onChoose(chosen: EarlierCode): void;
  onClose(): void;
}

const TYPING_PAUSE_MS = 150;

/** Lists the code of earlier jobs, the newest first, for one of them to be chosen. */
export function CodePicker({ onChoose, onClose }: Props) {
  const [text, setText] = useState("");
  const [q] = useDebouncedValue(text.trim(), TYPING_PAUSE_MS);
  const query = useInfiniteQuery(earlierCodeQuery(q));
  const found = query.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Dialog onClose={onClose} title="Code of an earlier job" size="lg">
      <TextInput
        type="search"
        label="Search"
        description="A part of a job's name, or the beginning of its id"
        value={text}
        data-autofocus
        onChange={(event) => setText(event.currentTarget.value)}
      />
      <PanelStates
        source={query}
        what="the code of earlier jobs"
        isEmpty={() => found.length === 0}
        empty={
          <EmptyState title={q ? `No job with code matches “${q}”` : "No job was submitted with code yet"}>
            {!q && "Choose or drop a folder, or use paceline submit --workdir."}
          </EmptyState>
        }
      >
        {() => (
          <ul className={classes.list} aria-label="Code of earlier jobs, newest first">
            {found.map((item) => (
              <li key={item.job_id}>
                <CodeButton item={item} onChoose={onChoose} />
              </li>
            ))}
          </ul>
        )}
      </PanelStates>
      {query.hasNextPage && (
        <Button
          mt="xs"
          variant="default"
          size="compact-sm"
          loading={query.isFetchingNextPage}
          onClick={() => void query.fetchNextPage()}
        >
          Show older code
        </Button>
      )}
    </Dialog>
  );
}

function CodeButton({ item, onChoose }: { item: EarlierCode; onChoose: Props["onChoose"] }) {
  const now = useServerNow(60_000);
  const facts = [item.code.folder, originOf(item.code), plural(item.files, "file"), bytes(item.bytes)];
  return (
    <button type="button" className={classes.choice} onClick={() => onChoose(item)}>
      <span className={classes.name}>{item.job_name}</span>
      <span className={classes.when} title={dateTime(item.created_at)}>
        {age(now - Date.parse(item.created_at))} ago by {item.created_by}
      </span>
      <span className={classes.facts}>{facts.filter(Boolean).join(" · ")}</span>
    </button>
  );
}
