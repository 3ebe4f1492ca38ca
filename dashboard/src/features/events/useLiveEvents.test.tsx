import { act, waitFor } from "@testing-library/react";
import { expect, it } from "vitest";
import { FakeSocket } from "@/testing/fakeSocket";
import { openForm } from "@/testing/submitForm";
import { EVENTS_STREAM_PATH } from "./api/events";

it("asks again for what it may have missed as the stream begins, but for no schema and no plan", async () => {
  const { seen } = await openForm();
  const asked = (path: string) => seen.filter((request) => request.path === `/api/v1${path}`).length;
  await waitFor(() => expect(asked("/training/plan")).toBe(1));
  const before = asked("/auth/me");
  act(() => FakeSocket.to(EVENTS_STREAM_PATH).hello(7));
  await waitFor(() => expect(asked("/auth/me")).toBe(before + 1));
  expect([asked("/training/spec-schema"), asked("/training/plan")]).toEqual([1, 1]);

  // Another coordinator may have another schema, and lacks what happened before it began.
  act(() => FakeSocket.to(EVENTS_STREAM_PATH).send({ type: "reset" }));
  await waitFor(() => expect(asked("/training/spec-schema")).toBe(2));
});
