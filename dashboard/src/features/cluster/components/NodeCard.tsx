import { StateBadge } from "@/components/ui/StateBadge";
import { age, bytes, MISSING } from "@/lib/format";
import type { HostReading, Node } from "@/lib/types";
import classes from "./Cluster.module.css";
import { Gauge } from "./Gauge";
import { GpuTiles } from "./GpuTiles";
import { NodeActions } from "./NodeActions";
import { Slots } from "./Slots";

const STALE_AFTER_SECONDS = 15;

export function NodeCard({ node }: { node: Node }) {
  const stale = (node.heartbeat_age_seconds ?? 0) > STALE_AFTER_SECONDS;
  return (
    <article className={classes.card} aria-label={`Node ${node.name}`} data-stale={stale || undefined}>
      <header className={classes.cardHeader}>
        <h3 className={classes.cardName}>{node.name}</h3>
        <StateBadge state={node.state} />
        {node.platform === "simulated" && <span className={classes.simulated}>simulated</span>}
        <span className={classes.cardActions}>
          <NodeActions node={node} />
        </span>
      </header>
      {stale && (
        <p className={classes.staleNote}>
          Readings are stale: last heartbeat {age(node.heartbeat_age_seconds! * 1000)} ago.
        </p>
      )}
      {(node.drain_blocked_by ?? []).length > 0 && (
        <p className={classes.staleNote}>
          Draining waits for {node.drain_blocked_by!.map((id) => nameOf(node, id)).join(", ")}.
        </p>
      )}
      <Slots node={node} />
      <Marks name="Labels" marks={node.labels} />
      <Marks name="Taints" marks={node.taints} />
      {node.host ? (
        <HostGauges host={node.host} cpus={node.cpu_count} />
      ) : (
        <p className={classes.note}>No host readings yet.</p>
      )}
      <GpuTiles gpus={node.gpus} note={node.gpu_note} />
      <footer className={classes.cardFooter}>{footer(node)}</footer>
    </article>
  );
}

/** Labels or taints, as jobs ask for them. */
function Marks({ name, marks }: { name: string; marks: Record<string, string> }) {
  const shown = Object.entries(marks).map(([key, value]) => (value ? `${key}=${value}` : key));
  return shown.length > 0 ? (
    <p className={classes.note}>
      {name} {shown.sort().join(", ")}
    </p>
  ) : null;
}

function nameOf(node: Node, jobId: string): string {
  return node.slots.find((slot) => slot.job_id === jobId)?.job_name ?? jobId;
}

function HostGauges({ host, cpus }: { host: HostReading; cpus: number }) {
  return (
    <div className={classes.gauges}>
      <Gauge name="CPU" share={host.cpu_percent / 100} text={`${Math.round(host.cpu_percent)}% of ${cpus}`} />
      <Gauge
        name="Memory"
        share={host.memory_used_bytes / host.memory_total_bytes}
        text={`${bytes(host.memory_used_bytes)} of ${bytes(host.memory_total_bytes)}`}
      />
      <Gauge
        name="Disk"
        share={host.disk_used_bytes / host.disk_total_bytes}
        text={`${bytes(host.disk_used_bytes)} of ${bytes(host.disk_total_bytes)}`}
      />
      <p className={classes.note}>
        Network {bytes(Math.round(host.network_received_bytes_per_second))}/s in,{" "}
        {bytes(Math.round(host.network_sent_bytes_per_second))}/s out · load {host.load_1m.toFixed(2)}
      </p>
    </div>
  );
}

function footer(node: Node): string {
  const skew = node.clock_skew_seconds == null ? MISSING : `${Math.round(node.clock_skew_seconds * 1000) || 0} ms`;
  const versions = ["paceline", "torch", "python", "driver"]
    .filter((name) => node.versions[name])
    .map((name) => `${name} ${node.versions[name]}`);
  const backlog = node.backlog_records > 0 ? [`${node.backlog_records} records to upload`] : [];
  const origin = node.pool ? [`pool ${node.pool}`] : node.provider === "manual" ? [] : [node.provider];
  const tools = [...node.container_engines, ...(node.has_uv === false ? ["no uv"] : [])];
  return [...origin, node.hostname, node.address, ...versions, ...tools, `clock skew ${skew}`, ...backlog].join(" · ");
}
