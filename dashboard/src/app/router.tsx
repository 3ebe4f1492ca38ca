import type { QueryClient } from "@tanstack/react-query";
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
  type AnyRoute,
  type AsyncRouteComponent,
} from "@tanstack/react-router";
import { meQuery } from "@/lib/me";
import { specSchemaQuery } from "@/lib/spec/query";
import { JobsPage } from "./pages/JobsPage";
import { LoginPage } from "./pages/LoginPage";
import { NotFound, RouteError } from "./pages/Fallbacks";
import {
  checkpointsSearch,
  clusterSearch,
  compareSearch,
  experimentSearch,
  experimentsSearch,
  jobSearch,
  jobsSearch,
  loginSearch,
  modelsSearch,
  newExperimentSearch,
  notificationsSearch,
  peopleSearch,
  submitSearch,
} from "./search";
import { Shell } from "./Shell";

// The editor and the charts are most of the script: pages that need them bring them.
const SubmitPage = lazyRouteComponent(() => import("./pages/SubmitPage"), "SubmitPage");
const JobPage = lazyRouteComponent(() => import("./pages/JobPage"), "JobPage");
const ComparePage = lazyRouteComponent(() => import("./pages/ComparePage"), "ComparePage");
const CheckpointsPage = lazyRouteComponent(() => import("./pages/CheckpointsPage"), "CheckpointsPage");
const ModelsPage = lazyRouteComponent(() => import("./pages/ModelsPage"), "ModelsPage");
const PeoplePage = lazyRouteComponent(() => import("./pages/PeoplePage"), "PeoplePage");
const NotificationsPage = lazyRouteComponent(() => import("./pages/NotificationsPage"), "NotificationsPage");
const StoragePage = lazyRouteComponent(() => import("./pages/StoragePage"), "StoragePage");
const ExperimentsPage = lazyRouteComponent(() => import("./pages/ExperimentsPage"), "ExperimentsPage");
const NewExperimentPage = lazyRouteComponent(() => import("./pages/NewExperimentPage"), "NewExperimentPage");
const ExperimentPage = lazyRouteComponent(() => import("./pages/ExperimentPage"), "ExperimentPage");
const ClusterPage = lazyRouteComponent(() => import("./pages/ClusterPage"), "ClusterPage");

const root = createRootRouteWithContext<{ client: QueryClient }>()({
  component: Outlet,
  errorComponent: RouteError,
});

const login = createRoute({
  getParentRoute: () => root,
  path: "/login",
  validateSearch: loginSearch,
  component: LoginPage,
});

/** Everything behind a session. */
const shell = createRoute({
  getParentRoute: () => root,
  id: "shell",
  component: Shell,
  beforeLoad: async ({ context, location }) => {
    const me = await context.client.ensureQueryData(meQuery);
    if (me === null) throw redirect({ to: "/login", search: { next: location.href } });
  },
});

const index = createRoute({
  getParentRoute: () => shell,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/jobs", search: {} });
  },
});
const jobs = createRoute({
  getParentRoute: () => shell,
  path: "/jobs",
  validateSearch: jobsSearch,
  component: JobsPage,
});
const submit = createRoute({
  getParentRoute: () => shell,
  path: "/jobs/new",
  validateSearch: submitSearch,
  // Beside the code of the page, not behind it.
  loader: ({ context }) => void context.client.prefetchQuery(specSchemaQuery),
  component: SubmitPage,
});
const job = createRoute({
  getParentRoute: () => shell,
  path: "/jobs/$jobId",
  validateSearch: jobSearch,
  component: JobPage,
});
const compare = createRoute({
  getParentRoute: () => shell,
  path: "/compare",
  validateSearch: compareSearch,
  component: ComparePage,
});
const experiments = createRoute({
  getParentRoute: () => shell,
  path: "/experiments",
  validateSearch: experimentsSearch,
  component: ExperimentsPage,
});
const newExperiment = createRoute({
  getParentRoute: () => shell,
  path: "/experiments/new",
  validateSearch: newExperimentSearch,
  component: NewExperimentPage,
});
const experiment = createRoute({
  getParentRoute: () => shell,
  path: "/experiments/$experimentId",
  validateSearch: experimentSearch,
  component: ExperimentPage,
});
const cluster = createRoute({
  getParentRoute: () => shell,
  path: "/cluster",
  validateSearch: clusterSearch,
  component: ClusterPage,
});

const checkpoints = createRoute({
  getParentRoute: () => shell,
  path: "/checkpoints",
  validateSearch: checkpointsSearch,
  component: CheckpointsPage,
});

const models = createRoute({
  getParentRoute: () => shell,
  path: "/models",
  validateSearch: modelsSearch,
  component: ModelsPage,
});
const storage = createRoute({ getParentRoute: () => shell, path: "/storage", component: StoragePage });
const people = createRoute({
  getParentRoute: () => shell,
  path: "/people",
  validateSearch: peopleSearch,
  component: PeoplePage,
});
const notifications = createRoute({
  getParentRoute: () => shell,
  path: "/notifications",
  validateSearch: notificationsSearch,
  component: NotificationsPage,
});

/** Every other address, for people who are signed in. */
const nowhere = createRoute({ getParentRoute: () => shell, path: "$", component: NotFound });

const routeTree = root.addChildren([
  login,
  shell.addChildren([
    index,
    jobs,
    submit,
    job,
    compare,
    experiments,
    newExperiment,
    experiment,
    cluster,
    checkpoints,
    models,
    storage,
    people,
    notifications,
    nowhere,
  ]),
]);

export function createAppRouter(client: QueryClient) {
  return createRouter({ routeTree, context: { client }, defaultPendingMs: 200, scrollRestoration: true });
}

/** Begins to load the code of the first page, which would otherwise wait for the answer about the session. */
export function preloadFirstPage(router: AppRouter): void {
  const routes: Record<string, AnyRoute> = router.routesById;
  for (const { routeId } of router.matchRoutes(router.latestLocation))
    void (routes[routeId]?.options.component as AsyncRouteComponent<unknown> | undefined)?.preload?.();
}

export type AppRouter = ReturnType<typeof createAppRouter>;

declare module "@tanstack/react-router" {
  interface Register {
    router: AppRouter;
  }
}
