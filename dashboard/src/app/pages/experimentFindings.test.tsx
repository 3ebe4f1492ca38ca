import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { analysis, difference, effect, experimentAnalysis, fit, outlier } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const region = (name: string) => screen.findByRole("region", { name });

describe("what an experiment found", () => {
  it("says what its findings need while there are too few results", async () => {
    mockApi();
    renderApp("/experiments/exp1");
    expect(await region("Laws of scaling")).toHaveTextContent("Numbers of ranks measured so far: 3.");
    expect(await region("Pareto front")).toHaveTextContent("A front needs two configurations");
    expect(await region("Differences")).toHaveTextContent("A comparison needs two configurations");
    expect(await region("Outlying trials")).toHaveTextContent("three repeats of two configurations");
  });

  it("names outlying trials and links to their jobs", async () => {
    const made = analysis({ outliers: [outlier()] });
    mockApi({ "GET /api/v1/experiments/exp1/analysis": () => ok(experimentAnalysis({ analysis: made })) });
    renderApp("/experiments/exp1");
    const panel = await region("Outlying trials");
    expect(await within(panel).findByRole("link", { name: "ddp-versus-fsdp-0" })).toHaveAttribute("href", "/jobs/job1");
    expect(within(panel).getAllByRole("row")[1]).toHaveTextContent(
      "0ddp-versus-fsdp-0+50%Step time0.15 s0.1 ssingle, 1 rank",
    );
  });

  it("draws the law and the differences that its URL names, and writes there what is chosen", async () => {
    const fits = [fit(), fit({ law: "alpha_beta", text: "The alpha-beta model describes ddp." })];
    const differences = [difference({ is_difference: false, p_value: null })];
    const made = analysis({ fits, effects: [effect()], differences });
    mockApi({ "GET /api/v1/experiments/exp1/analysis": () => ok(experimentAnalysis({ analysis: made })) });
    const { router } = renderApp("/experiments/exp1?fit=alpha_beta/ddp");
    expect(await region("Laws of scaling")).toHaveTextContent("The alpha-beta model describes ddp.");
    await userEvent.click(within(await region("Differences")).getByRole("radio", { name: "Pairs" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ fit: "alpha_beta/ddp", compare: "pairs" }));
    expect(await region("Differences")).toHaveTextContent(/1 comparison, none of which has enough repeats/);
  });
});
