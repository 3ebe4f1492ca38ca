import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import type { Failure } from "@/lib/types";
import { FailurePanel } from "./FailurePanel";

const FAILURE = {
  kind: "exit",
  rank: 0,
  node_name: "a",
  generation: 2,
  message: "exited with code 3",
  exit_code: 3,
  last_lines: ["the end is near"],
  victims: [],
} as unknown as Failure;

describe("the failure at the top of a job's page", () => {
  it("names a step only where one is known", () => {
    render(
      <MantineProvider>
        <FailurePanel jobId="job1" failure={{ ...FAILURE, step: 0 }} ended />
        <FailurePanel jobId="job1" failure={{ ...FAILURE, step: 1500 }} ended={false} />
      </MantineProvider>,
    );
    expect(screen.getByText("The cause, in generation 2, exit code 3")).toBeTruthy();
    expect(screen.getByText("The last failure, at step 1,500 of generation 2, exit code 3")).toBeTruthy();
    expect(screen.getAllByText("Rank 0 on a exited with code 3")).toHaveLength(2);
  });
});
