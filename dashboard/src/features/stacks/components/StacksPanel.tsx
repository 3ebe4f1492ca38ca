import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconStack2 } from "@tabler/icons-react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { plural } from "@/lib/format";
import type { Job, JobStacks, RankStacks } from "@/lib/types";
import { stacksQuery } from "../api/stacks";
import classes from "./Stacks.module.css";

const HAS_PROCESSES = new Set(["starting", "running", "recovering", "resizing", "stopping"]);

/** Where every rank is in its code: taken by py-spy on its node, on request. */
export function StacksPanel({ job }: { job: Job }) {
  const query = useQuery(stacksQuery(job.id));
  if (!HAS_PROCESSES.has(job.state)) return null;
  const take = (
    <Button
      size="compact-xs"
      variant="default"
      loading={query.isFetching}
      leftSection={<IconStack2 size={13} />}
      onClick={() => void query.refetch()}
    >
      Take stacks
    </Button>
  );
  const untouched = query.data === undefined && !query.error && !query.isFetching;
  return (
    <Panel title="Stacks" actions={take}>
      {untouched ? (
        <EmptyState title="No stacks taken">
          Stacks show where each rank is in its Python code, and which rank differs from the others.
        </EmptyState>
      ) : (
        <PanelStates source={query} what="the stacks">
          {(found) => <Taken found={found} />}
        </PanelStates>
      )}
    </Panel>
  );
}

function Taken({ found }: { found: JobStacks }) {
  return (
    <>
      <p className={classes.summary}>{found.summary}</p>
      {found.ranks.map((rank) => (
        <RankStack key={rank.rank} stacks={rank} />
      ))}
    </>
  );
}

function RankStack({ stacks }: { stacks: RankStacks }) {
  return (
    <details className={classes.rank} open={stacks.differs}>
      <summary>
        Rank {stacks.rank} on {stacks.node_name} {stacks.summary}
        {stacks.differs && <StateBadge state="differs" tone="warn" />}
        {stacks.cores != null && <span className="muted">CPU {Math.round(stacks.cores * 100)}%</span>}
        {stacks.gpu_percent != null && <span className="muted">GPU {Math.round(stacks.gpu_percent)}%</span>}
      </summary>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls must be reachable by keyboard */}
      <pre className={classes.frames} tabIndex={0} role="region" aria-label={`Stack of rank ${stacks.rank}`}>
        {textOf(stacks)}
      </pre>
    </details>
  );
}

/** As Python prints a traceback: the innermost frame last. */
function textOf({ processes, error }: RankStacks): string {
  if (processes.length === 0) return error || "no process";
  return processes
    .flatMap(({ pid, command, threads, error: why }) => {
      const [main] = threads;
      const frames = [...(main?.frames ?? [])]
        .reverse()
        .map((frame) => `    File "${frame.file}", line ${frame.line}, in ${frame.function}`);
      const left = threads.length > 1 ? [`    and ${plural(threads.length - 1, "more thread")}`] : [];
      return [
        `process ${pid}${command && `: ${command}`}`,
        ...(main ? [`  thread ${main.name} (most recent call last):`, ...frames, ...left] : [`  ${why}`]),
      ];
    })
    .join("\n");
}
