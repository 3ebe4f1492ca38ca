import { QueryClient } from "@tanstack/react-query";
import { expect, it, vi } from "vitest";
import { leftFile } from "@/testing/fixtures";
import { contentQuery } from "./files";

it("asks for no bytes of an empty file, which has none that a range could begin at", async () => {
  const fetch = vi.fn();
  vi.stubGlobal("fetch", fetch);
  expect(await new QueryClient().fetchQuery(contentQuery("job1", leftFile({ bytes: 0 })))).toBe("");
  expect(fetch).not.toHaveBeenCalled();
});
