import { fireEvent, screen } from "@testing-library/react";
import { mockApi, type Routes } from "./mockApi";
import { renderApp } from "./renderApp";

/** The page of a new job, once its form is there. */
export async function openForm(routes: Routes = {}) {
  const seen = mockApi(routes);
  const app = renderApp("/jobs/new");
  await screen.findByText("Fault tolerance"); // sections below the first screen are drawn after it
  return { seen, ...app, submit: () => screen.getByText("Submit job").closest("button")! };
}

export const unfold = (section: string) => fireEvent.click(screen.getByText(section));

export const sent = (seen: ReturnType<typeof mockApi>) =>
  seen.filter(({ method, path }) => method === "POST" && path === "/api/v1/training/jobs");
