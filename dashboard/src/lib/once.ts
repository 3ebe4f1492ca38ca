import { useRef } from "react";
import { newIdempotencyKey } from "./client";

/**
 * Sends the same input once for as long as the component is there: a second click gets the answer of the first one.
 *
 * What failed is sent again, under the same key: where only its answer was lost, nothing is created twice.
 */
export function useOnce<Input, Output>(send: (input: Input, key: string) => Promise<Output>) {
  const last = useRef<{ text: string; key: string; answer: Promise<Output> | null }>({
    text: "",
    key: "",
    answer: null,
  });
  return (input: Input): Promise<Output> => {
    const text = JSON.stringify(input);
    if (last.current.text !== text) last.current = { text, key: newIdempotencyKey(), answer: null };
    const current = last.current;
    current.answer ??= send(input, current.key).catch((error: unknown) => {
      current.answer = null;
      throw error;
    });
    return current.answer;
  };
}
