import { describe, expect, it } from "vitest";
import { analysis, configuration, estimate, experimentAnalysis, trial, trialCounts } from "@/testing/fixtures";
import { coordinateAxes } from "./coordinates";
import {
  barOf,
  countsInWords,
  jobsOf,
  lossOfCancelling,
  lossOfPausing,
  needsAnalysis,
  newerTrials,
  notCompletedInWords,
} from "./experiments";
import { differing, valuesOf, withStrategies } from "./fields";
import { bestFirst, figureNamed, figuresOf, intervalOf, titleOf, written, type Goal } from "./figures";
import { heatGrid, heatSentence, strength } from "./heat";
import { isWide, leftOutByLog, lossLines, lossSentence } from "./losses";
import { asksOfScaling, scalingLines, scalingRows, scalingSentence } from "./scaling";
import { partNames, splitRows, splitSentence } from "./split";

const COUNTS = trialCounts({ total: 10, completed: 3, failed: 1, running: 2, waiting: 3, refused: 1 });

describe("the trials of an experiment", () => {
  it("are counted as the command line counts them", () => {
    expect(countsInWords(COUNTS)).toBe("3 of 10 completed, 2 running, 3 waiting, 1 refused, 1 failed");
    expect(notCompletedInWords(COUNTS)).toBe("1 refused, 1 failed");
    expect(notCompletedInWords(trialCounts({ total: 1, completed: 1 }))).toBe("");
    expect(barOf(COUNTS).map(({ name, value }) => `${name} ${value}`)).toEqual([
      "completed 3",
      "failed 1",
      "running 2",
      "waiting 3",
    ]);
  });

  it("say what a pause and a cancellation cost", () => {
    expect(lossOfPausing(COUNTS)).toBe(
      "2 running trials will save a checkpoint, pause, and free their slots. Nothing is lost.",
    );
    expect(lossOfCancelling(COUNTS)).toBe(
      "2 trials under way will be cancelled, with what they have trained; 3 trials will never start. The results of 4 trials that ended are kept.",
    );
  });

  it("are newer than an analysis that has not seen them", () => {
    expect(newerTrials(trialCounts({ completed: 4, failed: 1, pruned: 2 }), experimentAnalysis())).toBe(3);
  });

  it("are analyzed by themselves as they end, pruned ones too, and once more when all is over", () => {
    const made = experimentAnalysis({ made_at: "2026-01-01T10:00:00Z" });
    const going = { trials: trialCounts({ completed: 4 }), ended_at: null };
    expect(needsAnalysis(going, made, 60_000)).toBe(false);
    expect(needsAnalysis({ ...going, trials: trialCounts({ completed: 4, pruned: 1 }) }, made, 60_000)).toBe(true);
    expect(needsAnalysis({ ...going, trials: trialCounts({ pruned: 1 }) }, null, 0)).toBe(true);
    expect(needsAnalysis({ ...going, ended_at: "2026-01-01T10:00:05Z" }, made, 60_000)).toBe(true);
    expect(needsAnalysis({ ...going, ended_at: "2026-01-01T09:59:55Z" }, made, 60_000)).toBe(false);
  });

  it("have jobs, but for those that have not started", () => {
    const known = [trial({ index: 0 }), trial({ index: 1, job: null })];
    expect(jobsOf(configuration({ trials: [0, 1] }), known)).toEqual([{ index: 0, jobId: "job1" }]);
  });
});

describe("the figures of a configuration", () => {
  it("have an interval where there is more than one value", () => {
    const efficiency = figureNamed("efficiency")!;
    expect(written(estimate(0.82, 0.8, 0.83), efficiency)).toBe("82% (80–83%)");
    expect(intervalOf(estimate(0.82), efficiency)).toBeNull();
    expect(written(null, efficiency)).toBe("–");
    expect(intervalOf(estimate(0.2, 0.095, 0.3), figureNamed("step_seconds")!)).toBe("95 ms–0.3 s");
  });

  it("are those that any has, the metric by its own name", () => {
    const figures = figuresOf([configuration({ metric: estimate(1) }), configuration({ goodput: estimate(1) })]);
    expect(figures.map((figure) => titleOf(figure, "accuracy"))).toEqual(["Goodput", "Final accuracy"]);
  });

  it("stand beside the fields that differ, and no other", () => {
    const rows = [{ values: { a: 1, b: 2 } }, { values: { a: 1, b: 10 } }, { values: { a: 1, b: 2, c: "x" } }];
    expect(differing(rows, ["a", "b"])).toEqual(["b", "c"]);
    expect(valuesOf(rows, "b")).toEqual([2, 10]);
  });
});

describe("a single process", () => {
  it("has its strategy beside the others, though it is none of its values", () => {
    const single = configuration({ values: { world_size: 1 } });
    const [told] = withStrategies(analysis({ configurations: [single] })).configurations;
    expect(told!.values).toEqual({ "parallelism.strategy": "single", world_size: 1 });
    expect(withStrategies(analysis({ axes: [], configurations: [single] })).configurations).toEqual([single]);
  });
});

describe("scaling efficiency", () => {
  const lines = scalingLines(analysis());

  it("is a line for each strategy, which begins with the single process; refused ones have no place", () => {
    expect(lines.map(({ name, points }) => `${name}: ${points.map(({ ranks }) => ranks).join()}`)).toEqual([
      "ddp: 1,2,4",
      "fsdp: 1,2",
    ]);
    expect(scalingSentence(lines)).toBe("Of the ideal speedup, ddp keeps 70% on 4 ranks; fsdp keeps 80% on 2 ranks.");
  });

  it("is predicted by the predicted times of both, the single process and the ranks", () => {
    const [, two] = lines[0]!.points;
    expect(two!.predicted).toBeCloseTo(0.1 / (2 * (0.11 / 1.8)));
  });

  it("goes on as foretold beyond what was measured", () => {
    const prediction = { configuration: 3, ranks: 64, step_seconds: 1, samples_per_second: 1, efficiency: 0.4 };
    const further = analysis({ predictions: [{ ...prediction, peak_memory_bytes: null, assumptions: "10 Gbit/s" }] });
    expect(scalingRows(scalingLines(further)).filter(({ ranks }) => ranks === 64)).toEqual([
      { line: "ddp", ranks: 64, measured: null, predicted: 0.4 },
    ]);
  });

  it("is not asked for where ranks do not vary", () => {
    expect(asksOfScaling(analysis({ configurations: [configuration()] }))).toBe(false);
  });
});

describe("the split of a step", () => {
  it("has the parts in the order of a step, and tells the shortest and the longest", () => {
    const { configurations } = analysis();
    expect(partNames(configurations)).toEqual(["forward", "backward", "communication"]);
    expect(splitSentence(splitRows(configurations))).toBe(
      "ddp, 2 ranks takes 60 ms, 50% of it backward (the shortest step); single, 1 rank takes 0.1 s, 60% of it backward (the longest).",
    );
  });
});

describe("configurations", () => {
  const measured = (index: number, metric: number | null, speed: number | null = null) =>
    configuration({
      index,
      metric: metric === null ? null : estimate(metric),
      samples_per_second: speed === null ? null : estimate(speed),
    });
  const indices = (best: number | null, goal: Goal) =>
    bestFirst(
      [
        configuration({ index: 0, refusal: "no" }),
        measured(1, null, 10),
        measured(2, null, 20),
        measured(3, 2),
        measured(4, 1),
        measured(5, 2),
      ],
      best,
      goal,
    ).map(({ index }) => index);

  it("stand in the order of their results, then of their speed, those that were refused last", () => {
    expect(indices(null, "minimize")).toEqual([4, 3, 5, 2, 1, 0]);
    expect(indices(null, "maximize")).toEqual([3, 5, 4, 2, 1, 0]);
  });

  it("begin with the recommended one", () => {
    expect(indices(2, "minimize")).toEqual([2, 4, 3, 5, 1, 0]);
  });
});

describe("losses", () => {
  it("are drawn by samples or by time, the recommended one first", () => {
    expect(lossLines(analysis(), "seconds").map(({ name, points }) => [name, points.at(-1)])).toEqual([
      ["ddp, 4 ranks", [0.06, null]],
      ["single, 1 rank", [0.2, 1.9]],
    ]);
    expect(lossSentence(lossLines(analysis(), "samples"), "samples")).toBe(
      "ddp, 4 ranks 2.3 after 32 samples; single, 1 rank 1.9 after 64 samples.",
    );
  });

  it("are wide apart where the positive ones span more than two decades", () => {
    const lines = (...losses: (number | null)[]) =>
      lossLines(analysis({ series: [{ ...analysis().series[0]!, steps: [1, 2, 3], losses }] }), "steps");
    const wide = (...losses: (number | null)[]) => isWide(lines(...losses));
    expect([wide(2.3, 1.9), wide(0.1, 10), wide(0, -500), wide(null, null)]).toEqual([false, false, false, false]);
    expect([wide(0.1, 10.1), wide(1e30, 2), wide(5, 0.01, -3)]).toEqual([true, true, false]);
    expect(leftOutByLog(lines(1, null, 2))).toBe("");
    expect(leftOutByLog(lines(1, 0, -2))).toBe(" Not on a log scale: 2 values of zero or less.");
  });

  it("have six colours; the rest stands behind in grey", () => {
    const one = analysis().series[0]!;
    const many = analysis({ series: Array.from({ length: 8 }, (_, trialIndex) => ({ ...one, trial: trialIndex })) });
    expect(lossLines(many, "steps").filter(({ color }) => color === null)).toHaveLength(2);
  });
});

describe("a heat map", () => {
  const figure = figureNamed("samples_per_second")!;
  const { configurations } = analysis();
  const grid = heatGrid(
    configurations.filter(({ refusal }) => refusal === null),
    "world_size",
    "parallelism.strategy",
    figure,
  );

  it("has a cell for each pair, empty where nothing was measured", () => {
    expect(grid.xs).toEqual([1, 2, 4]);
    expect(grid.cells.filter(({ value }) => value === null)).toHaveLength(5);
    expect(heatSentence(grid, "world_size", "parallelism.strategy", figure, "Samples per second", "more")).toBe(
      "Samples per second is best at ranks 4 and strategy ddp: 2.8k. Hatched: 5 of 9 not measured.",
    );
  });

  it("is strongest where it is best, whichever way that is", () => {
    expect(strength(1000, grid.cells, "less")).toBe(1);
    expect(strength(1000, grid.cells, "more")).toBe(0);
  });
});

describe("parallel coordinates", () => {
  it("place chosen values evenly and drawn ones by their size", () => {
    const { configurations } = analysis();
    expect(
      coordinateAxes(configurations, analysis().axes, "loss").find(({ id }) => id === "world_size")!.positions,
    ).toEqual([0, 0.5, 0.5, 1, 1]);
    const drawn = Array.from({ length: 9 }, (_, index) =>
      configuration({ index, values: { lr: 10 ** (index / 2 - 4) } }),
    );
    const [axis] = coordinateAxes(drawn, ["lr"], "loss");
    expect(axis!.positions[4]).toBeCloseTo(0.5);
    expect(axis!.ticks.map(({ text }) => text)).toEqual(["1e-4", "1"]);
  });
});
