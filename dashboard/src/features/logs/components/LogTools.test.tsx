import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import { useState } from "react";
import { expect, it } from "vitest";
import type { LogFilter } from "../api/logs";
import { LogTools } from "./LogTools";

function Tools({ first = {} }: { first?: LogFilter }) {
  const [filter, setFilter] = useState<LogFilter>(first);
  const still = { follow: false, onFollow: () => {}, wrap: false, onWrap: () => {}, jump: null, problem: undefined };
  return (
    <MantineProvider>
      <LogTools
        jobId="job1"
        world={1}
        filter={filter}
        {...still}
        onFilter={(part) => setFilter({ ...filter, ...part })}
      />
      <output>{filter.q ?? "everything"}</output>
      <button onClick={() => setFilter({})}>Clear filters</button>
    </MantineProvider>
  );
}

it("searches for what is typed, and shows no text that is no longer searched for", async () => {
  render(<Tools />);
  const field = screen.getByRole("textbox", { name: "Search logs" });
  fireEvent.change(field, { target: { value: "OOM" } });
  await waitFor(() => expect(screen.getByRole("status")).toHaveTextContent("OOM"));
  fireEvent.click(screen.getByRole("button", { name: "Clear filters" }));
  expect(field).toHaveValue("");
  fireEvent.change(field, { target: { value: "OOM" } });
  await waitFor(() => expect(screen.getByRole("status")).toHaveTextContent("OOM"));
});

it("names the rank whose lines are shown, though the job has become smaller", () => {
  render(<Tools first={{ rank: 3 }} />);
  expect(screen.getByLabelText("Filter by rank", { selector: "input" })).toHaveValue("Rank 3");
});
