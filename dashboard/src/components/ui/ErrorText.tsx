import { asApiError, type ApiError } from "@/lib/errors";
import { sentence } from "@/lib/format";
import { AboutError } from "./AboutError";
import { Marked } from "./Marked";

interface Props {
  error: unknown;
  /** Stands alone, and begins with a capital: not for messages that may begin with a name. */
  alone?: boolean;
}

/** The message of an error, and a link to where the documentation explains it. */
export function ErrorText({ error, alone = false }: Props) {
  const message = plainMessage(asApiError(error));
  return (
    <>
      <Marked text={alone ? sentence(message) : message} /> <AboutError error={error} />
    </>
  );
}

/** The message; a field at the top of what was sent is named as its label is, not by a pointer: "name: ..." in place of "/name: ...". */
function plainMessage({ message, errors }: ApiError): string {
  const pointer = errors[0]?.pointer ?? "";
  return /^\/\w+$/.test(pointer) && message.startsWith(`${pointer}: `) ? message.slice(1) : message;
}
