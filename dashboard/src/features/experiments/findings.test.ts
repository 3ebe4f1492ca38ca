import { describe, expect, it } from "vitest";
import { analysis, configuration, difference, effect, estimate, fit } from "@/testing/fixtures";
import { changeOf, comparedFigures, comparisons, comparisonsSentence, probabilityOf } from "./comparisons";
import { fitPoints, fitsNeed, fitTitle, LAWS, signedPercent } from "./fits";
import { canTellOutliers } from "./outliers";
import { paretoFront, paretoSentence, staircase } from "./pareto";

const point = (index: number, speed: number, memory: number | null, pareto: boolean) =>
  configuration({
    index,
    label: `c${index}`,
    pareto,
    samples_per_second: estimate(speed),
    peak_memory_bytes: memory === null ? null : estimate(memory),
    metric: estimate(index),
  });
const indices = (points: readonly { configuration: number }[]) => points.map(({ configuration: index }) => index);

describe("a law beside what was measured", () => {
  it("misses by what is fitted over what was measured, as the analysis counts it", () => {
    const residuals = fitPoints(fit()).map(({ residual }) => residual);
    expect(residuals.map(signedPercent)).toEqual(["0%", "-10%", "0%"]);
    expect(Math.max(...residuals.map(Math.abs))).toBeCloseTo(fit().worst_residual);
    expect([signedPercent(0.0421), signedPercent(0.31), signedPercent(-0.0001)]).toEqual(["+4.2%", "+31%", "0%"]);
  });

  it("is named with its series and its parameters", () => {
    const model = fit({ law: "alpha_beta", parameters: { latency_seconds: 0.00283, bytes_per_second: 2 ** 20 } });
    expect(fitTitle(model)).toBe("Alpha-beta model: ddp");
    expect(LAWS[model.law].parameters(model.parameters)).toBe("2.8 ms a message, 1.0 MiB/s");
    expect(LAWS.gustafson.parameters({ serial_share: 0.125 })).toBe("serial share 12.5%");
  });

  it("needs three numbers of ranks, of which so many are measured", () => {
    const waiting = configuration({ world_size: 8 });
    const measured = configuration({ world_size: 2, step_seconds: estimate(1) });
    expect(fitsNeed(analysis({ configurations: [measured, measured, waiting] }))).toMatch(/measured so far: 1\.$/);
  });
});

describe("comparisons", () => {
  it("are of values over all pairs, or of two configurations", () => {
    const [of] = comparisons(
      analysis({ effects: [effect({ path: "a.lr, b", first: [1, "x"], second: [2, "y"] })] }),
      "values",
    );
    expect(of).toMatchObject({
      label: "Learning rate, B: 2, y instead of 1, x",
      pairs: 2,
      smallest: 0.75,
      largest: 0.9,
    });
    const [pair] = comparisons(analysis({ differences: [difference()] }), "pairs");
    expect(pair).toMatchObject({ label: "fsdp, 2 ranks beside ddp, 2 ranks", pairs: 1, smallest: 0.8, p: 0.004 });
    expect(comparedFigures([of!]).map(({ name }) => name)).toEqual(["samples_per_second"]);
  });

  it("say how many could be tested, and claim nothing where none could", () => {
    const effects = [effect(), effect({ p_value: 0.3, is_difference: false }), effect({ p_value: null })];
    expect(comparisonsSentence(comparisons(analysis({ effects }), "values"))).toMatch(
      /^3 comparisons, 2 with enough repeats for a permutation test; 2 shown/,
    );
    const untested = [effect({ p_value: null, is_difference: false })];
    expect(comparisonsSentence(comparisons(analysis({ effects: untested }), "values"))).toMatch(/^1 comparison, none/);
  });

  it("write a change as a share, and a large one as a factor", () => {
    expect([0.81, 1.042, 3.14159, -0.5, 1].map(changeOf)).toEqual(["-19%", "+4.2%", "3.14×", "-0.5×", "0%"]);
    expect([null, 0.0004, 0.1349].map(probabilityOf)).toEqual(["not tested", "p < 0.001", "p = 0.13"]);
  });
});

describe("the Pareto front", () => {
  const configurations = [point(0, 10, 5, false), point(1, 20, 8, true), point(2, 30, 9, true), point(3, 25, 9, true)];

  it("has those on the front first, and joins those that none beats in what is drawn", () => {
    const front = paretoFront(analysis({ configurations }))!;
    expect(front.cost.name).toBe("peak_memory_bytes");
    expect(indices(front.points)).toEqual([2, 3, 1, 0]);
    expect(indices(staircase(front, "minimize"))).toEqual([2, 1]);
    expect(paretoSentence(front, "loss")).toMatch(/^On the front: c2; c3; c1\. /);
  });

  it("is of the metric where memory is unknown, whichever way that is better", () => {
    const front = paretoFront(analysis({ configurations: [point(1, 20, null, true), point(2, 10, null, true)] }))!;
    expect(front.cost.name).toBe("metric");
    expect(indices(staircase(front, "minimize"))).toEqual([1]);
    expect(indices(staircase(front, "maximize"))).toEqual([1, 2]);
  });

  it("needs two configurations", () => {
    expect(paretoFront(analysis({ configurations: [point(1, 20, 8, true)] }))).toBeNull();
  });
});

describe("outlying trials", () => {
  it("can be told by three repeats of two configurations, or five of one", () => {
    const repeats = (...counts: number[]) =>
      canTellOutliers(counts.map((count) => ({ step_seconds: { ...estimate(1), count } })));
    expect([repeats(3, 3), repeats(5), repeats(3, 2, 2), repeats(4)]).toEqual([true, true, false, false]);
  });
});
