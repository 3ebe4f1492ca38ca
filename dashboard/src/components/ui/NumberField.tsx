import { TextInput, type TextInputProps } from "@mantine/core";
import { numberOf } from "@/lib/numbers";
import { useSpelling } from "@/lib/useSpelling";

interface Props extends Omit<TextInputProps, "value" | "onChange" | "onBlur"> {
  /** A text where what was typed is no number. */
  value: number | string | undefined;
  onValue(value: number | string | undefined): void;
}

/** A number in any notation. What is typed stays as it is typed; what is no number is reported as a text, never dropped. */
export function NumberField({ value, onValue, ...input }: Props) {
  const [text, setText] = useSpelling(value, numberOf, String);
  return (
    <TextInput
      inputMode="decimal"
      {...input}
      value={text}
      onChange={(event) => {
        setText(event.currentTarget.value);
        onValue(numberOf(event.currentTarget.value));
      }}
    />
  );
}
