import { Button } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { useEffect, useMemo, useState } from "react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { asApiError } from "@/lib/errors";
import { sentence, timeZone } from "@/lib/format";
import { soFar } from "@/lib/jobs";
import type { Job } from "@/lib/types";
import { useNow } from "@/lib/useNow";
import type { LogFilter } from "../api/logs";
import { useLogFeed } from "../useLogFeed";
import { JumpMenu } from "./JumpMenu";
import { LogLines } from "./LogLines";
import classes from "./LogLines.module.css";
import { LogTools } from "./LogTools";

interface Props {
  jobId: string;
  world: number;
  live: boolean;
  removal: Job["data_removal"];
  filter: LogFilter;
  onFilter(change: Partial<LogFilter>): void;
}

const NO_FILTER = { rank: undefined, level: undefined, q: undefined, regex: undefined, context: undefined };

export function LogPanel({ jobId, world, live, removal, filter, onFilter }: Props) {
  const { rank, level, q, regex, context, line } = filter;
  const stable = useMemo(() => ({ rank, level, q, regex, context, line }), [rank, level, q, regex, context, line]);
  const search = useMemo(() => (q ? { q, regex: regex ?? false } : undefined), [q, regex]);
  const feed = useLogFeed(jobId, stable, live);
  const waitingSince = useWaitingSince(feed.status === "waiting");
  const problem = patternProblem(feed.query.error, filter);
  const { follow, setFollow, showLine } = useFollow(feed, line, onFilter);
  const [wrap, setWrap] = useLocalStorage({ key: "paceline-wrap-logs", defaultValue: true });
  const jump = (
    <JumpMenu
      jobId={jobId}
      filter={stable}
      newest={feed.lines.at(-1)?.time}
      onLine={showLine}
      onEnd={() => setFollow(true)}
    />
  );
  const tools = (
    <LogTools
      {...{ jobId, world, filter: stable, onFilter, follow, wrap, jump, problem }}
      onFollow={setFollow}
      onWrap={setWrap}
    />
  );
  const filtered = rank !== undefined || level !== undefined || !!q;
  return (
    <Panel title="Logs" flush actions={tools}>
      {problem ? (
        <EmptyState title="This search cannot run">Correct the regular expression, or clear it.</EmptyState>
      ) : (
        <PanelStates
          source={feed.query}
          what="the logs"
          rows={10}
          staleSince={waitingSince}
          isEmpty={() => feed.lines.length === 0}
          empty={<NoLines {...{ filtered, live, removal }} onClear={() => onFilter(NO_FILTER)} />}
        >
          {() => (
            <LogLines
              key={feed.query.dataUpdatedAt}
              lines={feed.lines}
              linked={line}
              search={search}
              follow={follow}
              atEnd={feed.atEnd}
              wrap={wrap}
              onFollow={setFollow}
              onLink={(seq) => onFilter({ line: seq })}
              onTop={feed.loadOlder}
              onEnd={feed.loadNewer}
            />
          )}
        </PanelStates>
      )}
      <footer className={classes.footer}>
        <span>Times: {timeZone()}</span>
        <span role="status">{feed.arriving && "The job has ended. Its last lines are still arriving."}</span>
      </footer>
    </Panel>
  );
}

/** Why the coordinator refuses the regular expression that is searched for; it says it at the field, not as a page that failed. */
function patternProblem(error: unknown, { q, regex }: LogFilter): string | undefined {
  if (!error || !regex || !q) return undefined;
  const { code, message } = asApiError(error);
  return code === "invalid_parameter" ? sentence(message) : undefined;
}

/** Whether the newest lines are shown. To follow is to leave a linked line, and what is loaded if that ends before them. */
function useFollow(
  { query, atEnd }: ReturnType<typeof useLogFeed>,
  line: number | undefined,
  onFilter: Props["onFilter"],
) {
  const [follow, setFollow] = useState(line === undefined);
  const { data, isFetching, refetch } = query;
  const behind = follow && line === undefined && data !== undefined && !atEnd;
  useEffect(() => {
    if (behind && !isFetching) void refetch();
  }, [behind, isFetching, refetch]);
  return {
    follow,
    setFollow: (on: boolean) => {
      setFollow(on);
      if (on && line !== undefined) onFilter({ line: undefined });
    },
    showLine: (seq: number) => {
      setFollow(false);
      if (seq === line) void refetch();
      else onFilter({ line: seq });
    },
  };
}

interface NoLinesProps extends Pick<Props, "live" | "removal"> {
  filtered: boolean;
  onClear(): void;
}

function NoLines({ filtered, live, removal, onClear }: NoLinesProps) {
  if (removal)
    return (
      <EmptyState title={removal.state === "removed" ? "The log was deleted" : "The log is being deleted"}>
        {removal.asked_by} requested it.
      </EmptyState>
    );
  if (!filtered)
    return (
      <EmptyState title={soFar("No output", live)}>
        {live ? "Lines appear here as soon as a rank prints one." : "The job ended without printing anything."}
      </EmptyState>
    );
  const clear = (
    <Button variant="default" onClick={onClear}>
      Clear filters
    </Button>
  );
  return <EmptyState title="No line matches" action={clear} />;
}

/** Since when the stream has been interrupted; null while it is not. */
function useWaitingSince(waiting: boolean): number | null {
  const now = useNow(1000);
  const [since, setSince] = useState<number | null>(null);
  if (waiting && since === null) setSince(now);
  if (!waiting && since !== null) setSince(null);
  return waiting ? since : null;
}
