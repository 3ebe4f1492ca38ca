import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import { expect, it } from "vitest";
import { createQueryClient } from "@/lib/query";
import type { Job } from "@/lib/types";
import { job } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { EditJob } from "./EditJob";

it("saves what was changed in it, and leaves what others have changed since it was opened", async () => {
  const seen = mockApi({ "PATCH /api/v1/training/jobs/job1": () => ok(job()) });
  const client = createQueryClient();
  const page = (shown: Job) => (
    <QueryClientProvider client={client}>
      <MantineProvider>
        <EditJob job={shown} />
      </MantineProvider>
    </QueryClientProvider>
  );
  const { rerender } = render(page(job({ priority: 50, labels: { a: "1" }, notes: "" })));
  fireEvent.click(screen.getByRole("button", { name: "Edit name, labels, priority and notes" }));
  const save = await screen.findByRole("button", { name: "Save" });
  rerender(page(job({ priority: 90, labels: { a: "1", b: "2" }, notes: "" })));
  expect(save).toBeDisabled();
  fireEvent.change(screen.getByRole("textbox", { name: "Notes" }), { target: { value: "mine" } });
  fireEvent.click(save);
  await waitFor(() => expect(seen.find(({ method }) => method === "PATCH")?.body).toEqual({ notes: "mine" }));
});
