import { MutationObserver, QueryObserver, type QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ApiError } from "./errors";
import { keys } from "./keys";
import { createQueryClient, refresh } from "./query";

const KEY = ["jobs", "one", "job1"];

/** A view of one query, whose fetches the test answers, in the order in which they were sent. */
function watch(client: QueryClient) {
  const answers: ((value: string) => void)[] = [];
  const failures: ((error: Error) => void)[] = [];
  const fetched = vi.fn(
    () =>
      new Promise<string>((resolve, reject) => {
        answers.push(resolve);
        failures.push(reject);
      }),
  );
  const observer = new QueryObserver(client, { queryKey: KEY, queryFn: fetched, retry: false });
  const stop = observer.subscribe(() => undefined);
  const seen = () => observer.getCurrentResult().data;
  const answer = async (fetch: number, value: string) => {
    answers[fetch]!(value);
    await vi.waitFor(() => expect(seen()).toBe(value));
  };
  return { answer, failures, fetched, seen, stop };
}

describe("refresh", () => {
  let client: QueryClient;
  beforeEach(() => {
    client = createQueryClient();
  });
  afterEach(() => client.clear());

  it("fetches again what a view shows", async () => {
    const { answer, fetched, stop } = watch(client);
    await answer(0, "old");
    refresh(client, { queryKey: ["jobs"] });
    await vi.waitFor(() => expect(fetched).toHaveBeenCalledTimes(2));
    await answer(1, "new");
    stop();
  });

  it("lets a fetch under way finish, however much news comes, and does it once more", async () => {
    const { answer, fetched, seen, stop } = watch(client);
    for (let news = 0; news < 5; news++) refresh(client, { queryKey: ["jobs"] });
    expect(fetched).toHaveBeenCalledTimes(1);
    await answer(0, "read before the news");
    await vi.waitFor(() => expect(fetched).toHaveBeenCalledTimes(2));
    expect(seen()).toBe("read before the news");
    await answer(1, "new");
    expect(fetched).toHaveBeenCalledTimes(2);
    stop();
  });

  it("fetches once more after a failure, too", async () => {
    const { answer, failures, fetched, stop } = watch(client);
    refresh(client, { queryKey: ["jobs"] });
    failures[0]!(new Error("no answer"));
    await vi.waitFor(() => expect(fetched).toHaveBeenCalledTimes(2));
    await answer(1, "new");
    stop();
  });

  it("leaves alone what does not match", async () => {
    const { answer, fetched, stop } = watch(client);
    await answer(0, "old");
    refresh(client, { queryKey: ["events"] });
    await Promise.resolve();
    expect(fetched).toHaveBeenCalledTimes(1);
    expect(client.getQueryState(KEY)?.isInvalidated).toBe(false);
    stop();
  });
});

it.each(["csrf", "not_authenticated"])("asks who is signed in where a request is refused with %s", async (code) => {
  const client = createQueryClient();
  const asked = vi.fn(() => Promise.resolve("ada"));
  const stop = new QueryObserver(client, { queryKey: keys.me, queryFn: asked }).subscribe(() => undefined);
  await vi.waitFor(() => expect(client.getQueryData(keys.me)).toBe("ada"));
  const status = code === "csrf" ? 403 : 401;
  const refused = () => Promise.reject(new ApiError({ status, code, detail: "refused" }));
  const send = new MutationObserver(client, { mutationFn: refused });
  await expect(send.mutate()).rejects.toBeInstanceOf(ApiError);
  await vi.waitFor(() => expect(asked).toHaveBeenCalledTimes(2));
  stop();
  client.clear();
});
