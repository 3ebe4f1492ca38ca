import { TextInput, type TextInputProps } from "@mantine/core";
import { useState } from "react";
import { numberOf } from "@/lib/numbers";

interface Props extends Omit<TextInputProps, "value" | "onChange" | "onBlur"> {
  /** A text where what was typed is no number. */
  value: number | string | undefined;
  onValue(value: number | string | undefined): void;
}

/** A number in any notation. What is typed stays as it is typed until the field is left; what is no number is reported as a text, never dropped. */
export function NumberField({ value, onValue, ...input }: Props) {
  const [typed, setTyped] = useState<string | null>(null);
  return (
    <TextInput
      {...input}
      inputMode="decimal"
      value={typed ?? (value === undefined ? "" : String(value))}
      onChange={(event) => {
        setTyped(event.currentTarget.value);
        onValue(numberOf(event.currentTarget.value));
      }}
      onBlur={() => setTyped(null)}
    />
  );
}
