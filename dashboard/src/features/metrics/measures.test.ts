import { expect, it } from "vitest";
import { measuresOf, worstOf } from "./measures";

const PLAIN = { script: false, cards: false };
const namesOf = (measures: readonly { name: string }[]) => measures.map(({ name }) => name);

it("are those that the ranks have reported, the time without waiting first, and readings of cards where there are cards", () => {
  const reported = ["loss", "step_seconds", "data_seconds", "images_seen"];
  expect(namesOf(measuresOf(reported, PLAIN))).toEqual([
    "busy_seconds",
    "step_seconds",
    "data_seconds",
    "images_seen",
    "loss",
  ]);
  expect(namesOf(measuresOf(reported, { script: true, cards: false }))).toContain("loss");
  const cards = namesOf(measuresOf(reported, { script: false, cards: true })).filter((name) =>
    name.startsWith("card/"),
  );
  expect(cards).toContain("card/sm_clock_mhz");
  expect(cards).not.toContain("card/ecc_corrected");
  expect(measuresOf([], { script: false, cards: true })).toEqual([]);
});

it("are every curve that ranks report, after the parts of a step and a user's own metrics", () => {
  const reported = ["step_seconds", "other_seconds", "loss", "tokens_per_second", "shard_sent_bytes", "mfu", "mine"];
  const found = measuresOf(reported, PLAIN);
  expect(new Set(namesOf(found))).toEqual(new Set(["busy_seconds", ...reported]));
  expect(namesOf(found).slice(0, 3)).toEqual(["busy_seconds", "step_seconds", "mine"]);
  expect(found.find(({ name }) => name === "other_seconds")?.label).toBe("Other");
  expect(found.filter(({ worst }) => worst === "lowest").map(({ label }) => label)).toEqual([
    "Tokens per second",
    "MFU",
  ]);
  expect(namesOf(measuresOf(reported, { script: true, cards: false })).filter((name) => name === "loss")).toEqual([
    "loss",
  ]);
});

it.each([
  "card/sm_clock_mhz",
  "card/utilization_percent",
  "card/nvlink_sent_bytes_per_second",
  "images_per_second",
  "images_per_sec",
  "train/throughput",
  "gpu_utilization",
])("is worst where it is lowest: %s", (name) => {
  expect(worstOf(name)).toBe("lowest");
  expect(measuresOf([name], { script: true, cards: true }).find((one) => one.name === name)?.worst).toBe("lowest");
});

it.each(["busy_seconds", "peak_memory_bytes", "card/temperature_celsius", "card/throttled_by_heat", "loss", "my_loss"])(
  "is worst where it is highest: %s",
  (name) => {
    expect(worstOf(name)).toBe("highest");
  },
);
