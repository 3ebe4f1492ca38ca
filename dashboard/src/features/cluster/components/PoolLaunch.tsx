import { Button, NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { CopyBox } from "@/components/ui/CopyBox";
import { DocsLink } from "@/components/ui/DocsLink";
import { NumberField } from "@/components/ui/NumberField";
import { PanelStates } from "@/components/ui/Panel";
import { asApiError } from "@/lib/errors";
import { wholeNumberProblem } from "@/lib/numbers";
import type { NodePool } from "@/lib/types";
import { useLaunch } from "../api/launches";
import { poolsQuery } from "../api/pools";
import { providerOf } from "../pools";
import classes from "./Cluster.module.css";

/** Launches nodes of a pool. Where people start the nodes, it shows their commands. */
export function PoolLaunch({ onDone }: { onDone(): void }) {
  const pools = useQuery(poolsQuery);
  return (
    <PanelStates
      source={pools}
      what="the pools"
      rows={2}
      isEmpty={(found) => found.length === 0}
      empty={
        <p className={classes.step}>
          There are no pools yet. <em>New pool</em> on this page creates one, as does{" "}
          <code>paceline pools apply FILE</code>. <DocsLink page="nodes.html">Your machines</DocsLink>
        </p>
      }
    >
      {(found) => <PoolForm pools={found} onDone={onDone} />}
    </PanelStates>
  );
}

function PoolForm({ pools, onDone }: { pools: readonly NodePool[]; onDone(): void }) {
  const [name, setName] = useState(pools[0]!.name);
  const [count, setCount] = useState<number | string | undefined>(1);
  const launch = useLaunch();
  const pool = pools.find((each) => each.name === name) ?? pools[0]!;
  const room = pool.max_nodes - pool.nodes - pool.coming;
  const problem = wholeNumberProblem(count, 1, Math.max(1, room));
  const commands = launch.data?.launches.flatMap((each) => each.command ?? []) ?? [];
  if (commands.length > 0)
    return (
      <>
        <p className={classes.step}>Run each of these on a machine. They are shown only once.</p>
        {commands.map((command) => (
          <CopyBox key={command} value={command} />
        ))}
      </>
    );
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault();
        if (problem !== null) return;
        launch.mutate(
          { pool: name, count: Number(count ?? 1) },
          { onSuccess: (made) => made.launches.some((each) => each.command) || onDone() },
        );
      }}
    >
      <NativeSelect
        label="Pool"
        data={pools.map((each) => each.name)}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
        description={`${providerOf(pool)}: ${pool.nodes} of at most ${pool.max_nodes} nodes, ${pool.coming} coming`}
      />
      <NumberField label="Nodes" placeholder="1" value={count} error={problem} onValue={setCount} />
      {launch.error && (
        <p className={classes.actionError} role="alert">
          {asApiError(launch.error).message}
        </p>
      )}
      <Button type="submit" loading={launch.isPending} disabled={problem !== null}>
        Launch
      </Button>
    </form>
  );
}
