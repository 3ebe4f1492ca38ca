import { describe, expect, it } from "vitest";
import { curve } from "@/testing/fixtures";
import { runLines, type ComparedRun } from "./runs";

function run(name: string, ...curves: ComparedRun["curves"]): ComparedRun {
  return { id: name, name, startedAt: 100, curves };
}

describe("several runs on one chart", () => {
  it("are a line each, a repeated step by its newest generation", () => {
    const killed = run(
      "killed",
      curve({ steps: [1, 2], last: [5, 4], times: [110, 120] }),
      curve({ generation: 2, steps: [2, 3], last: [4.5, 3], times: [150, 160] }),
    );
    const [line] = runLines([killed], "loss", "nats", "time");
    expect(line).toMatchObject({ label: "killed", steps: [1, 2, 3], value: [5, 4.5, 3], x: [10, 50, 60] });
  });

  it("have no leftover of a generation that ended within a bucket", () => {
    const diverged = curve({ bucket_steps: 10, steps: [1229, 1234], maximum: [5, 1e6], last: [5, 1e6] });
    const again = curve({ generation: 2, bucket_steps: 10, steps: [1229, 1239], last: [4, 3] });
    const [line] = runLines([run("a", diverged, again)], "loss", "nats", "step");
    expect(line).toMatchObject({ steps: [1229, 1239], maximum: [4, 3], value: [4, 3] });
  });

  it("are dashed where they lie on an earlier one, which would be hidden otherwise", () => {
    const runs = [
      run("a", curve()),
      run("b", curve()),
      run("c", curve({ last: [5, 3] })),
      run("d", curve({ name: "other" })),
    ];
    expect(runLines(runs, "loss", "nats", "step").map(({ dashed }) => dashed)).toEqual([false, true, false, false]);
  });

  it("are drawn on the axis that their own metrics make", () => {
    const [line] = runLines(
      [run("a", curve(), curve({ name: "first_sample", last: [0, 32] }), curve({ name: "samples", last: [32, 32] }))],
      "loss",
      "nats",
      "samples",
    );
    expect(line!.x).toEqual([32, 64]);
  });
});
