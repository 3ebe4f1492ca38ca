import { asApiError, type ApiError } from "@/lib/errors";
import { sentence } from "@/lib/format";
import { AboutError } from "./AboutError";
import { Marked } from "./Marked";

interface Props {
  error: unknown;
  /** Stands alone, and begins with a capital: not for messages that may begin with a name. */
  alone?: boolean;
  /** Labels of fields that the API calls something else. */
  labels?: Readonly<Record<string, string>>;
}

/** The message of an error, and a link to where the documentation explains it. */
export function ErrorText({ error, alone = false, labels = {} }: Props) {
  const message = plainMessage(asApiError(error), labels);
  return (
    <>
      <Marked text={alone ? sentence(message) : message} /> <AboutError error={error} />
    </>
  );
}

/** The message; a field at the top of what was sent is named as its label is, not by a pointer: "name: ..." in place of "/name: ...". */
function plainMessage({ message, errors }: ApiError, labels: Readonly<Record<string, string>>): string {
  const pointer = errors[0]?.pointer ?? "";
  if (!/^\/\w+$/.test(pointer) || !message.startsWith(`${pointer}: `)) return message;
  const field = pointer.slice(1);
  return (labels[field] ?? field) + message.slice(pointer.length);
}
