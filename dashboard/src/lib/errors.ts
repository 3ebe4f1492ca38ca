import type { FieldError, Problem } from "./types";

/**
 * Error
 * └─ ApiError          the coordinator answered with a problem document
 *    └─ UnreachableError   it did not answer at all
 */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly errors: readonly FieldError[];
  readonly requestId: string | null;
  /** Where the documentation explains the code; null where it does not. */
  readonly docs: string | null;

  constructor(problem: Partial<Problem> & { status: number; code: string; detail: string }) {
    super(problem.detail);
    this.name = "ApiError";
    this.status = problem.status;
    this.code = problem.code;
    this.errors = problem.errors ?? [];
    this.requestId = problem.request_id ?? null;
    this.docs = problem.type?.startsWith("/docs/") ? problem.type : null;
  }
}

export class UnreachableError extends ApiError {
  constructor() {
    super({
      status: 0,
      code: "unreachable",
      detail: "The coordinator did not answer. Check that it is running, then retry.",
    });
    this.name = "UnreachableError";
  }
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof TypeError) return new UnreachableError();
  return new ApiError({
    status: 0,
    code: "unexpected",
    detail: error instanceof Error ? error.message : String(error),
  });
}

/** The problem document of an answer; a proxy's HTML page becomes one too. */
export function problemOf(body: unknown, response: Response): ApiError {
  if (typeof body === "object" && body !== null && "code" in body && "detail" in body) {
    return new ApiError({ ...(body as Problem), status: response.status });
  }
  if (response.status >= 502 && response.status <= 504) return new UnreachableError();
  return new ApiError({
    status: response.status,
    code: `http_${response.status}`,
    detail: `The server answered ${response.status} without a problem document.`,
  });
}
