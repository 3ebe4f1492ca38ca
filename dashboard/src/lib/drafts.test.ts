import { describe, expect, it } from "vitest";
import { Drafts } from "./drafts";

const A_DAY_MS = 24 * 3600 * 1000;

describe("drafts", () => {
  it("are kept by what they were begun from, for one user and one kind of document", () => {
    const mine = new Drafts("u1", "job");
    expect(mine.read("template:gpt")).toBeNull();
    expect(mine.keep("template:gpt", "name: a", 1000)).toBe(true);
    expect(mine.keep("from:job1", "name: b", 2000)).toBe(true);
    expect(mine.read("template:gpt")).toEqual({ source: "template:gpt", text: "name: a", at: 1000 });
    expect(mine.list(3000).map(({ source }) => source)).toEqual(["from:job1", "template:gpt"]);
    expect(new Drafts("u2", "job").list(3000)).toEqual([]);
    expect(new Drafts("u1", "experiment").list(3000)).toEqual([]);
    mine.drop("from:job1");
    expect(mine.list(3000).map(({ source }) => source)).toEqual(["template:gpt"]);
  });

  it("are dropped after a month", () => {
    const drafts = new Drafts("u1", "job");
    drafts.keep("template:old", "name: a", 0);
    drafts.keep("template:new", "name: a", 20 * A_DAY_MS);
    expect(drafts.list(31 * A_DAY_MS).map(({ source }) => source)).toEqual(["template:new"]);
    expect(drafts.read("template:old")).toBeNull();
  });

  it("say when the browser has no room", () => {
    const full = {
      ...localStorage,
      setItem: () => {
        throw new DOMException("full", "QuotaExceededError");
      },
    };
    expect(new Drafts("u1", "job", full as unknown as Storage).keep("template:gpt", "name: a")).toBe(false);
  });
});
