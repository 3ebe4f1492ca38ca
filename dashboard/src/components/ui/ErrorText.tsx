import { asApiError } from "@/lib/errors";
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
  const { message } = asApiError(error);
  return (
    <>
      <Marked text={alone ? sentence(message) : message} /> <AboutError error={error} />
    </>
  );
}
