import { describe, expect, it } from "vitest";
import { choicesFrom, searchOf, templatesFrom } from "./choices";

describe("what a document can begin with", () => {
  it("takes a template's line from its document, and the order from the titles", () => {
    const files = { "../a/one.yaml": "# why\nname: one\ndescription: The first one\n", "../a/two.yaml": "name: two\n" };
    expect(templatesFrom(files, { two: "Second", one: "First" })).toMatchObject([
      { name: "two", title: "Second", line: "", source: "template:two" },
      { name: "one", title: "First", line: "The first one", source: "template:one" },
    ]);
  });

  it("names a draft by the name that is written in it", () => {
    const titles = choicesFrom([
      { source: "from:job1", text: "name: mine\nsteps: 3", at: 0 },
      { source: "from:job2", text: "name: [broken", at: 0 },
    ]).map(({ title }) => title);
    expect(titles).toEqual(["mine", "Unnamed"]);
  });

  it("is found again by its address", () => {
    expect(searchOf("template:gpt_stdlib")).toEqual({ template: "gpt_stdlib" });
    expect(searchOf("from:01J")).toEqual({ from: "01J" });
  });
});
