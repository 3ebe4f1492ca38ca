import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { describe, expect, it, vi } from "vitest";
import { resolve, validate, type Issue, type Resolved, type Schema } from "@/lib/spec/schema";
import { SchemaField } from "./SchemaField";

function written(schema: Partial<Resolved>, text: string): unknown {
  const onChange = vi.fn();
  const { unmount } = render(
    <MantineProvider>
      <SchemaField
        path={["map"]}
        schema={{ type: "object", nullable: true, ...schema }}
        value={undefined}
        issues={[]}
        onChange={onChange}
      />
    </MantineProvider>,
  );
  const field = screen.getByLabelText("Map");
  fireEvent.change(field, { target: { value: text } });
  fireEvent.blur(field);
  unmount();
  return onChange.mock.calls[0]![1];
}

it("sets what its hint and its problem quote in backticks as code", () => {
  const issues = [{ pointer: "/weights", message: "`a` is no folder" }] satisfies Issue[];
  const schema: Resolved = { type: "string", description: "Written by `paceline export`.", nullable: false };
  render(
    <MantineProvider>
      <SchemaField path={["weights"]} schema={schema} value={undefined} issues={issues} onChange={vi.fn()} />
    </MantineProvider>,
  );
  expect(screen.getByText("paceline export").tagName).toBe("CODE");
  expect(screen.getByText("a").tagName).toBe("CODE");
  expect(screen.getByLabelText("Weights")).toHaveAccessibleDescription(/Written by paceline export\./);
});

describe("a map", () => {
  it("takes numbers, truth values and lists where the schema allows more than text", () => {
    const text = "model_type=llama\nhidden_size=192\ntie_word_embeddings=true\neos_token_id=[1, 2]";
    expect(written({ additionalProperties: true }, text)).toEqual({
      model_type: "llama",
      hidden_size: 192,
      tie_word_embeddings: true,
      eos_token_id: [1, 2],
    });
  });

  it("keeps text where the schema wants text", () => {
    expect(written({ patternProperties: { "^[A-Z_]+$": { type: "string" } } }, "DEBUG=1")).toEqual({ DEBUG: "1" });
    expect(written({ additionalProperties: { type: "string" } }, "DEBUG=1")).toEqual({ DEBUG: "1" });
  });
});

describe("what is wrong inside a field", () => {
  const described = (name: string, schema: Partial<Resolved>, value: unknown, issues: readonly Issue[]) => {
    render(
      <MantineProvider>
        <SchemaField path={[name]} schema={{ nullable: false, ...schema }} {...{ value, issues }} onChange={vi.fn()} />
      </MantineProvider>,
    );
    return expect(screen.getByRole("textbox"));
  };

  it("stands at the field of a list, with the place in it", () => {
    const issues = [{ pointer: "/steps/1", message: "Must be less than 1, not 1.5" }];
    described("steps", { type: "array" }, [0.9, 1.5], issues).toHaveAccessibleDescription(
      "Item 2: Must be less than 1, not 1.5",
    );
  });

  it("stands at the field of a map, with the name of the entry", () => {
    const issues = [{ pointer: "/labels/team", message: "Must be a text, not 3" }];
    described("labels", { type: "object" }, { team: 3 }, issues).toHaveAccessibleDescription(
      /team: Must be a text, not 3/,
    );
  });

  it("does not repeat the hint", () => {
    const hint = "lower-case letters";
    const issues = [{ pointer: "/name", message: `Invalid value "X": ${hint}` }];
    described("name", { type: "string", description: hint }, "X", issues).toHaveAccessibleDescription(
      `Invalid value "X": ${hint}`,
    );
  });
});

describe("a map of labels", () => {
  const root: Schema = {
    type: "object",
    properties: { labels: { type: "object", additionalProperties: { type: "string" } } },
  };

  function Labels() {
    const [value, setValue] = useState<unknown>();
    return (
      <MantineProvider>
        <SchemaField
          path={["labels"]}
          schema={resolve(root, root.properties!.labels!)}
          value={value}
          issues={validate(root, value === undefined ? {} : { labels: value })}
          onChange={(_, next) => setValue(next)}
        />
      </MantineProvider>
    );
  }

  it.each([
    ["team=vision\nfoo", '"foo" has no value: write foo=VALUE'],
    ["=bar", '"=bar" has no name: write NAME=bar'],
    ["a=1\na=2", '"a" is there twice: keep one of its lines'],
  ])("refuses %j with a sentence, and keeps what was typed", (text, sentence) => {
    render(<Labels />);
    const field = screen.getByRole("textbox");
    fireEvent.change(field, { target: { value: text } });
    fireEvent.blur(field);
    expect(field).toHaveValue(text);
    expect(field).toHaveAccessibleDescription(expect.stringContaining(sentence));
  });
});

describe("a list", () => {
  it("takes digits as numbers, but where the schema wants text", () => {
    expect(written({ type: "array", items: { type: "integer" } }, "0, 3")).toEqual([0, 3]);
    expect(written({ type: "array", items: { type: "string" } }, "dedicated=vision, 7")).toEqual([
      "dedicated=vision",
      "7",
    ]);
  });

  it("goes out as it came in, commas included", () => {
    const onChange = vi.fn();
    const value = ["numpy>=1.26,<2", "einops"];
    const schema: Resolved = { type: "array", items: { type: "string" }, nullable: true };
    render(
      <MantineProvider>
        <SchemaField path={["names"]} {...{ schema, value, onChange }} issues={[]} />
      </MantineProvider>,
    );
    const field = screen.getByLabelText<HTMLInputElement>("Names");
    fireEvent.change(field, { target: { value: `${field.value}, b` } });
    fireEvent.blur(field);
    expect(onChange).toHaveBeenCalledWith(["names"], [...value, "b"]);
  });

  it.each([
    [[0.9, 0.95], "0.9, 0.95"],
    [[], null],
  ])("shows its default %j as it would be typed", (value, placeholder) => {
    render(
      <MantineProvider>
        <SchemaField
          path={["list"]}
          schema={{ type: "array", nullable: false, default: value }}
          value={undefined}
          issues={[]}
          onChange={vi.fn()}
        />
      </MantineProvider>,
    );
    expect(screen.getByLabelText("List").getAttribute("placeholder")).toBe(placeholder);
  });
});

describe("an amount", () => {
  const schema: Resolved = { nullable: true, anyOf: [{ type: "integer", minimum: 1 }, { type: "string" }] };

  it.each([
    ["64", 64],
    ["1e2", 100],
    ["auto", "auto"],
    ["512MiB", "512MiB"],
  ])("takes %s as what it is", (text, value) => {
    const onChange = vi.fn();
    render(
      <MantineProvider>
        <SchemaField path={["amount"]} schema={schema} value={undefined} issues={[]} onChange={onChange} />
      </MantineProvider>,
    );
    fireEvent.change(screen.getByLabelText("Amount"), { target: { value: text } });
    expect(onChange).toHaveBeenCalledWith(["amount"], value);
  });
});

describe("a number", () => {
  function Lone({ type, onSet }: { type: string; onSet(value: unknown): void }) {
    const [value, setValue] = useState<unknown>();
    const change = (_: unknown, next: unknown) => {
      setValue(next);
      onSet(next);
    };
    return (
      <MantineProvider>
        <SchemaField path={["lr"]} schema={{ type, nullable: false }} value={value} issues={[]} onChange={change} />
      </MantineProvider>
    );
  }

  it.each([
    ["number", ".0003", 0.0003],
    ["number", "3e-4", 0.0003],
    ["number", "6.0E-4", 0.0006],
    ["number", "1e-8", 1e-8],
    ["integer", "1e4", 10_000],
    ["integer", "2.5", 2.5],
    ["integer", "-34", -34],
  ])("of kind %s, typed key by key as %s, means %d", async (type, text, number) => {
    const onSet = vi.fn();
    render(<Lone type={type} onSet={onSet} />);
    const field = screen.getByRole("textbox");
    await userEvent.type(field, text);
    await userEvent.tab();
    expect(field).toHaveValue(text);
    expect(onSet).toHaveBeenLastCalledWith(number);
  });

  it.each(["fast", "3e", "1,000"])(
    "does not become another number where %s is typed: the text goes on to be refused",
    async (text) => {
      const onSet = vi.fn();
      render(<Lone type="number" onSet={onSet} />);
      await userEvent.type(screen.getByRole("textbox"), text);
      expect(onSet).toHaveBeenLastCalledWith(text);
      await userEvent.tab();
      expect(screen.getByRole("textbox")).toHaveValue(text);
    },
  );
});

it("keeps the lines of a text that has several", () => {
  const onChange = vi.fn();
  const schema: Resolved = { type: "string", nullable: true };
  render(
    <MantineProvider>
      <SchemaField path={["description"]} schema={schema} value={"one\ntwo"} issues={[]} onChange={onChange} />
    </MantineProvider>,
  );
  const field = screen.getByLabelText("Description");
  expect(field).toHaveValue("one\ntwo");
  fireEvent.change(field, { target: { value: "one\ntwo!" } });
  expect(onChange).toHaveBeenCalledWith(["description"], "one\ntwo!");
});
