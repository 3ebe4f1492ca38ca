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

  const told = (name: string) => screen.getByText(name).nextElementSibling;

  it("claims nothing that git has not said: a browser's folder may be a checkout with changes", () => {
    render(
      <MantineProvider>
        <CodeFacts code={{ bundle: BUNDLE, folder: "proj", commit: null, branch: null, uncommitted: [] }} />
      </MantineProvider>,
    );
    for (const name of ["Commit", "Branch", "Uncommitted"]) expect(told(name)).toHaveTextContent("not known");
  });

  it("may come from a repository without a commit", () => {
    render(
      <MantineProvider>
        <CodeFacts code={{ bundle: BUNDLE, folder: "proj", commit: null, branch: "main", uncommitted: [] }} />
      </MantineProvider>,
    );
    expect(told("Commit")).toHaveTextContent("none yet");
    expect(told("Uncommitted")).toHaveTextContent("no files");
  });
});
