import { Button, Select, Switch, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconDownload, IconSearch } from "@tabler/icons-react";
import { useMemo, useState } from "react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { soFar } from "@/lib/jobs";
import { useNow } from "@/lib/useNow";
import { LEVELS, logsDownloadPath, type Level, type LogFilter } from "../api/logs";
import { useLogFeed } from "../useLogFeed";
import { LogLines } from "./LogLines";

interface Props {
  jobId: string;
  world: number;
  live: boolean;
  filter: LogFilter;
  onFilter(change: Partial<LogFilter>): void;
}

export function LogPanel({ jobId, world, live, filter, onFilter }: Props) {
  const { rank, level, q, line } = filter;
  const stable = useMemo(() => ({ rank, level, q, line }), [rank, level, q, line]);
  const feed = useLogFeed(jobId, stable, live);
  const [follow, setFollow] = useState(line === undefined);
  const filtered = rank !== undefined || level !== undefined || !!q;
  const empty = filtered ? (
    <EmptyState
      title="No line matches"
      action={
        <Button variant="default" onClick={() => onFilter({ rank: undefined, level: undefined, q: undefined })}>
          Clear filters
        </Button>
      }
    />
  ) : (
    <EmptyState title={soFar("No output", live)}>
      {live ? "Lines appear here as soon as a rank prints one." : "The job ended without printing anything."}
    </EmptyState>
  );
  return (
    <Panel title="Logs" flush actions={<LogTools {...{ jobId, world, filter: stable, onFilter, follow, setFollow }} />}>
      <PanelStates
        source={feed.query}
        what="the logs"
        rows={10}
        staleSince={useWaitingSince(feed.status === "waiting")}
        isEmpty={() => feed.lines.length === 0}
        empty={empty}
      >
        {() => (
          <LogLines
            lines={feed.lines}
            linked={line}
            follow={follow}
            onFollow={setFollow}
            onLink={(seq) => onFilter({ line: seq })}
            onTop={feed.loadOlder}
            onEnd={feed.loadNewer}
          />
        )}
      </PanelStates>
    </Panel>
  );
}

/** Since when the stream has been interrupted; null while it is not. */
function useWaitingSince(waiting: boolean): number | null {
  const now = useNow(1000);
  const [since, setSince] = useState<number | null>(null);
  if (waiting && since === null) setSince(now);
  if (!waiting && since !== null) setSince(null);
  return waiting ? since : null;
}

interface ToolsProps {
  jobId: string;
  world: number;
  filter: LogFilter;
  onFilter(change: Partial<LogFilter>): void;
  follow: boolean;
  setFollow(follow: boolean): void;
}

const TYPING_PAUSE_MS = 300;

function LogTools({ jobId, world, filter, onFilter, follow, setFollow }: ToolsProps) {
  const [text, setText] = useState(filter.q ?? "");
  const search = useDebouncedCallback((q: string) => onFilter({ q: q || undefined, line: undefined }), TYPING_PAUSE_MS);
  const ranks = Array.from({ length: world }, (_, rank) => ({ value: String(rank), label: `Rank ${rank}` }));
  return (
    <>
      <TextInput
        aria-label="Search logs"
        placeholder="Search all lines"
        w={190}
        leftSection={<IconSearch size={14} aria-hidden />}
        value={text}
        onChange={(event) => {
          setText(event.currentTarget.value);
          search(event.currentTarget.value);
        }}
      />
      <Select
        aria-label="Filter by rank"
        placeholder="All ranks"
        w={112}
        clearable
        data={ranks}
        value={filter.rank?.toString() ?? null}
        onChange={(rank) => onFilter({ rank: rank === null ? undefined : Number(rank), line: undefined })}
      />
      <Select
        aria-label="Filter by level"
        placeholder="All levels"
        w={112}
        clearable
        data={[...LEVELS]}
        value={filter.level ?? null}
        onChange={(level) => onFilter({ level: (level ?? undefined) as Level | undefined, line: undefined })}
      />
      <Switch label="Follow" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} />
      <Button
        component="a"
        href={logsDownloadPath(jobId)}
        download
        variant="default"
        leftSection={<IconDownload size={14} />}
      >
        Download
      </Button>
    </>
  );
}
