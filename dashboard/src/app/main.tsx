import "@fontsource-variable/inter/index.css";
import "@fontsource/jetbrains-mono/400.css";
import "@mantine/core/styles.css";
import "./styles.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { createQueryClient } from "@/lib/query";
import { App } from "./App";
import { reloadOnMissingPart } from "./missingParts";
import { createAppRouter, preloadFirstPage } from "./router";

reloadOnMissingPart(() => window.location.reload());
const client = createQueryClient();
const router = createAppRouter(client);
preloadFirstPage(router);

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App client={client} router={router} />
  </StrictMode>,
);
