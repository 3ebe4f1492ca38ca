import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { PackageFacts } from "@/features/jobs/components/PackageFacts";
import { MantineProvider } from "@mantine/core";

describe("the packages of a job", () => {
  it("names the first of many requirements, and the torch they are on", () => {
    const requirements = Array.from({ length: 10 }, (_, number) => `package-${number}`);
    render(
      <MantineProvider>
        <PackageFacts environment={{ requirements }} />
      </MantineProvider>,
    );
    expect(screen.getByText(/package-0.*package-7 and 2 more$/)).toBeInTheDocument();
    expect(screen.getByText("the node's")).toBeInTheDocument();
  });

  it("tells an interpreter, or an image", () => {
    render(
      <MantineProvider>
        <PackageFacts environment={{ python: "/opt/venv/bin/python" }} />
      </MantineProvider>,
    );
    expect(screen.getByText("/opt/venv/bin/python")).toBeInTheDocument();
  });

  it("is not there for a job with the nodes' own packages", () => {
    render(
      <MantineProvider>
        <PackageFacts environment={{ variables: { A: "1" } }} />
      </MantineProvider>,
    );
    expect(screen.queryByText("Packages")).toBeNull();
  });
});
