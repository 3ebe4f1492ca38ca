import { bytes, MISSING } from "@/lib/format";
import type { GpuReading } from "@/lib/types";
import classes from "./Cluster.module.css";
import { Gauge } from "./Gauge";

/** Of a node; more cards get a line each, or a page of eight-card nodes would be metres long. */
const MOST_TILES = 2;

/** What the cards tell; what they do not tell is a dash, and a machine without one says so. */
export function GpuTiles({ gpus, note }: { gpus: readonly GpuReading[]; note: string | null }) {
  if (gpus.length === 0) return <p className={classes.noGpu}>{note ?? "no GPU"}</p>;
  if (gpus.length > MOST_TILES) return <GpuRows gpus={gpus} />;
  return (
    <ul className={classes.gpus} aria-label="GPUs">
      {gpus.map((gpu) => (
        <li key={gpu.uuid}>
          <GpuTile gpu={gpu} />
        </li>
      ))}
    </ul>
  );
}

function GpuTile({ gpu }: { gpu: GpuReading }) {
  const { utilization_percent: used = null, memory_used_bytes: memory = null, memory_total_bytes: total = null } = gpu;
  return (
    <div className={classes.gpu}>
      <strong>
        {gpu.index} · {gpu.name}
      </strong>
      {gpu.error && <span className={classes.gpuError}>{gpu.error}</span>}
      <Gauge name="Utilization" share={used === null ? null : used / 100} text={used === null ? MISSING : `${used}%`} />
      <Gauge
        name="Memory"
        share={memory === null || total === null ? null : memory / total}
        text={`${bytes(memory)} of ${bytes(total)}`}
      />
      <span className={classes.note}>
        Temperature {withUnit(gpu.temperature_celsius, "°C")} · power {withUnit(gpu.power_watts, "W")} of{" "}
        {withUnit(gpu.power_limit_watts, "W")} · SM {withUnit(gpu.sm_clock_mhz, "MHz")} · memory{" "}
        {withUnit(gpu.memory_clock_mhz, "MHz")}
      </span>
      <span className={classes.note}>
        ECC uncorrected {gpu.ecc_uncorrected ?? MISSING}
        {(gpu.throttle_reasons ?? []).length > 0 &&
          ` · throttled: ${gpu.throttle_reasons!.map((reason) => reason.replaceAll("_", " ")).join(", ")}`}
      </span>
    </div>
  );
}

function GpuRows({ gpus }: { gpus: readonly GpuReading[] }) {
  const names = [...new Set(gpus.map((gpu) => gpu.name))];
  return (
    <table className={classes.gpuRows} aria-label="GPUs">
      <caption>{names.join(", ")}</caption>
      <thead>
        <tr>
          <th scope="col">GPU</th>
          <th scope="col">Utilization</th>
          <th scope="col">Memory</th>
          <th scope="col">Power</th>
          <th scope="col">Temp.</th>
        </tr>
      </thead>
      <tbody>
        {gpus.map((gpu) => (
          <tr key={gpu.uuid} title={details(gpu)}>
            <th scope="row">{gpu.index}</th>
            {gpu.error ? (
              <td colSpan={4} className={classes.gpuError}>
                {gpu.error}
              </td>
            ) : (
              <>
                <td>{gpu.utilization_percent == null ? MISSING : `${Math.round(gpu.utilization_percent)}%`}</td>
                <td>{bytes(gpu.memory_used_bytes ?? null)}</td>
                <td>{withUnit(gpu.power_watts, "W")}</td>
                <td data-warn={(gpu.throttle_reasons ?? []).length > 0 || undefined}>
                  {withUnit(gpu.temperature_celsius, "°C")}
                </td>
              </>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What a line has no room for. */
function details(gpu: GpuReading): string {
  const throttled = (gpu.throttle_reasons ?? []).map((reason) => reason.replaceAll("_", " "));
  return [
    `${gpu.name}: ${bytes(gpu.memory_total_bytes ?? null)}, limit ${withUnit(gpu.power_limit_watts, "W")}`,
    `SM ${withUnit(gpu.sm_clock_mhz, "MHz")}, memory ${withUnit(gpu.memory_clock_mhz, "MHz")}`,
    `ECC uncorrected ${gpu.ecc_uncorrected ?? MISSING}`,
    ...(throttled.length > 0 ? [`throttled: ${throttled.join(", ")}`] : []),
  ].join("\n");
}

function withUnit(value: number | null | undefined, unit: string): string {
  return value == null ? MISSING : `${Math.round(value)} ${unit}`;
}
