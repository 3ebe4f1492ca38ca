import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { CodeFacts } from "./CodeFacts";

const BUNDLE = "a".repeat(64);

describe("the code of a job", () => {
  it("is told with its commit and what differed, and can be downloaded", () => {
    const uncommitted = ["a.py", "b.py", "c.py", "d.py", "e.py", "f.py"];
    render(
      <MantineProvider>
        <CodeFacts code={{ bundle: BUNDLE, folder: "proj", commit: "0123456789abcdef", branch: "main", uncommitted }} />
      </MantineProvider>,
    );
    expect(screen.getByText("0123456789ab")).toBeTruthy();
    expect(screen.getByText("6 files")).toBeTruthy();
    expect(screen.getByText("a.py, b.py, c.py, d.py, e.py and 1 more")).toBeTruthy();
    const link = screen.getByRole("link", { name: "Download code" });
    expect(link.getAttribute("href")).toBe(`/api/v1/training/bundles/${BUNDLE}/content`);
  });

  it("may come from no repository", () => {
    render(
      <MantineProvider>
        <CodeFacts code={{ bundle: BUNDLE, folder: null, commit: null, branch: null, uncommitted: [] }} />
      </MantineProvider>,
    );
    expect(screen.getByText("no git repository")).toBeTruthy();
  });
});
