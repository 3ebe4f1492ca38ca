import { describe, expect, it } from "vitest";
import { csvRows, MOST_ROWS, prettyJson, previewKind } from "./preview";

describe("what of a file is shown", () => {
  it("is text, tables and images of known types, and no page", () => {
    const kind = (media_type: string, bytes = 1) => previewKind({ media_type, bytes });
    expect(kind("text/plain; charset=utf-8")).toBe("text");
    expect(kind("text/csv; charset=utf-8")).toBe("table");
    expect(kind("application/json")).toBe("json");
    expect(kind("image/png")).toBe("image");
    expect(kind("image/png", 1 << 30)).toBeNull();
    for (const other of ["text/html", "image/svg+xml", "application/octet-stream"]) expect(kind(other)).toBeNull();
  });

  it("reads quotes, commas and line breaks in cells", () => {
    expect(csvRows('a,"b, ""c"""\r\n1,"two\nlines"\n\n,\nlast')).toEqual([
      ["a", 'b, "c"'],
      ["1", "two\nlines"],
      ["", ""],
      ["last"],
    ]);
    expect(csvRows("")).toEqual([]);
    expect(csvRows("x\n".repeat(10_000)).length).toBe(MOST_ROWS + 1);
  });

  it("indents JSON, and shows each number and key as the file has it", () => {
    expect(
      prettyJson('{"seed":9223372036854775807,"lr":1.0, "a":1,"a":2,"s":"x, \\"{y}\\": [","none":{ },"list":[ ]}'),
    ).toBe(
      `{
  "seed": 9223372036854775807,
  "lr": 1.0,
  "a": 1,
  "a": 2,
  "s": "x, \\"{y}\\": [",
  "none": {},
  "list": []
}`,
    );
    expect(prettyJson('[{"a":[1,-2e5]},null]')).toBe(
      JSON.stringify([{ a: [1, 0] }, null], null, 2).replace("0", "-2e5"),
    );
    expect(prettyJson(" 12345678901234567890 ")).toBe("12345678901234567890");
  });

  it("leaves JSON that is cut off as it is", () => {
    expect(prettyJson('{"a":1}')).toBe('{\n  "a": 1\n}');
    expect(prettyJson('{"a":')).toBe('{"a":');
  });
});
