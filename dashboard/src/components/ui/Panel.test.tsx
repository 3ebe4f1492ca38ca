import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { mockApi, problem } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

it("says why something could not be loaded in a sentence of its own", async () => {
  mockApi({ "GET /api/v1/training/jobs/nope": () => problem(404, "not_found", "there is no job 'nope'") });
  renderApp("/jobs/nope");
  expect(await screen.findByText(/^There is no job 'nope'$/)).toHaveTextContent(
    "Could not load this job. There is no job 'nope'",
  );
});
