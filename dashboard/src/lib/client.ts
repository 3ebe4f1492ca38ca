/** The one HTTP client: typed from the OpenAPI document, with CSRF on unsafe methods and problems as thrown errors. */
import createClient, { type Middleware } from "openapi-fetch";
import type { paths } from "./api.generated";
import { asApiError, problemOf, UnreachableError } from "./errors";
import { learnServerTime } from "./serverTime";

const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);
let csrfToken: string | null = null;

/** Called with every `me` answer; the token belongs to the session cookie. */
export function setCsrfToken(token: string | null): void {
  csrfToken = token;
}

const csrf: Middleware = {
  onRequest({ request }) {
    if (csrfToken && !SAFE.has(request.method)) request.headers.set("X-CSRF-Token", csrfToken);
    return request;
  },
};

export const api = createClient<paths>({
  baseUrl: globalThis.location?.origin ?? "",
  credentials: "same-origin",
  fetch: async (request) => {
    const sent = Date.now();
    const response = await globalThis.fetch(request); // looked up at call time, so that tests can replace it
    learnServerTime(response.headers, sent, Date.now());
    return response;
  },
});
api.use(csrf);

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The body of a successful answer, or a thrown `ApiError`. */
export async function unwrap<T>(pending: Promise<Answer<T>>): Promise<T> {
  const answer = await pending.catch((error: unknown) => {
    throw isAbort(error) ? error : error instanceof TypeError ? new UnreachableError() : asApiError(error);
  });
  if (!answer.response.ok) throw problemOf(answer.error, answer.response);
  return answer.data as T;
}

function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** One key per intended creation: sent again with a retry, so that a retry creates nothing twice. */
export function newIdempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
