import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconStack2 } from "@tabler/icons-react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { plural, title } from "@/lib/format";
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
      {groupsOf(found.ranks).map((group) => (
        <GroupStack key={group[0].rank} group={group} />
      ))}
    </>
  );
}

type Group = [RankStacks, ...RankStacks[]];

/** Ranks with the same stack stand together, those of the first rank first. */
function groupsOf(ranks: readonly RankStacks[]): Group[] {
  const groups = new Map<number, Group>();
  for (const rank of ranks) {
    const group = groups.get(rank.same_as);
    if (group) group.push(rank);
    else groups.set(rank.same_as, [rank]);
  }
  return [...groups.values()];
}

const MOST_NUMBERS = 12;

/** Ranks with their noun: "rank 3", "ranks 0, 2, 7". */
function named(group: Group): string {
  const numbers = group.slice(0, MOST_NUMBERS).map(({ rank }) => rank);
  const left = group.length - numbers.length;
  return `${group.length > 1 ? "ranks" : "rank"} ${numbers.join(", ")}${left > 0 ? ` and ${left} more` : ""}`;
}

function GroupStack({ group }: { group: Group }) {
  const [stacks] = group;
  const name = named(group);
  return (
    <details className={classes.rank} open={stacks.differs}>
      <summary>
        {title(name)}
        {group.length === 1 && ` on ${stacks.node_name}`}: {stacks.summary}
        {group.length > 1 && <span className="muted">the same stack in {plural(group.length, "rank")}</span>}
        {stacks.differs && <StateBadge state="differs" tone="warn" />}
        {group.length === 1 && stacks.cores != null && (
          <span className="muted">CPU {Math.round(stacks.cores * 100)}%</span>
        )}
        {group.length === 1 && stacks.gpu_percent != null && (
          <span className="muted">GPU {Math.round(stacks.gpu_percent)}%</span>
        )}
      </summary>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls must be reachable by keyboard */}
      <pre className={classes.frames} tabIndex={0} role="region" aria-label={`Stack of ${name}`}>
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
