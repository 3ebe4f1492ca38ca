import { screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { clusterSummary } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const SUMMARY = "GET /api/v1/metrics/cluster/summary";

describe("the cluster's throughput", () => {
  it("is told in samples where no job reads tokens", async () => {
    mockApi({ [SUMMARY]: () => ok({ ...clusterSummary, tokens_per_second: 0, samples_per_second: 97 }) });
    renderApp("/cluster");
    expect(await screen.findByText("samples/s, all jobs")).toBeVisible();
    expect(screen.getByText("97")).toBeVisible();
  });

  it("is told in tokens, with the samples of all jobs beside them", async () => {
    mockApi({ [SUMMARY]: () => ok({ ...clusterSummary, tokens_per_second: 12_400, samples_per_second: 97 }) });
    renderApp("/cluster");
    expect(await screen.findByText("tokens/s, all jobs; 97 samples/s")).toBeVisible();
  });
});
