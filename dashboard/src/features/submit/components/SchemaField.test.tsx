import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import type { Resolved } from "../schema";
import { SchemaField } from "./SchemaField";

function written(schema: Partial<Resolved>, text: string): unknown {
  const onChange = vi.fn();
  const { unmount } = render(<MantineProvider><SchemaField path={["map"]} schema={{ type: "object", nullable: true, ...schema }} value={undefined} issues={[]} onChange={onChange} /></MantineProvider>);
  const field = screen.getByLabelText("Map");
  fireEvent.change(field, { target: { value: text } });
  fireEvent.blur(field);
  unmount();
  return onChange.mock.calls[0]![1];
}

describe("a map", () => {
  it("takes numbers, truth values and lists where the schema allows more than text", () => {
    const text = "model_type=llama\nhidden_size=192\ntie_word_embeddings=true\neos_token_id=[1, 2]";
    expect(written({ additionalProperties: true }, text)).toEqual({ model_type: "llama", hidden_size: 192, tie_word_embeddings: true, eos_token_id: [1, 2] });
  });

  it("keeps text where the schema wants text", () => {
    expect(written({ patternProperties: { "^[A-Z_]+$": { type: "string" } } }, "DEBUG=1")).toEqual({ DEBUG: "1" });
    expect(written({ additionalProperties: { type: "string" } }, "DEBUG=1")).toEqual({ DEBUG: "1" });
  });
});

describe("an amount", () => {
  const schema: Resolved = { nullable: true, anyOf: [{ type: "integer", minimum: 1 }, { type: "string" }] };

  it.each([["64", 64], ["auto", "auto"], ["512MiB", "512MiB"]])("takes %s as what it is", (text, value) => {
    const onChange = vi.fn();
    render(<MantineProvider><SchemaField path={["amount"]} schema={schema} value={undefined} issues={[]} onChange={onChange} /></MantineProvider>);
    fireEvent.change(screen.getByLabelText("Amount"), { target: { value: text } });
    expect(onChange).toHaveBeenCalledWith(["amount"], value);
  });
});
