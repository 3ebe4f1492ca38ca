import { asApiError } from "@/lib/errors";

/** A link to where the documentation explains the code of an error; nothing where it does not. */
export function AboutError({ error }: { error: unknown }) {
  const { docs } = asApiError(error);
  return (
    docs && (
      <a href={docs} target="_blank" rel="noopener" className="aboutError">
        About this error
      </a>
    )
  );
}
