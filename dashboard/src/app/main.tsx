import "@fontsource-variable/inter/index.css";
import "@fontsource-variable/jetbrains-mono/index.css";
import "@mantine/core/styles.css";
import "./styles.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { createQueryClient } from "@/lib/query";
import { App } from "./App";
import { reloadOnMissingPart } from "./missingParts";
import { createAppRouter } from "./router";

reloadOnMissingPart(() => window.location.reload());
const client = createQueryClient();

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App client={client} router={createAppRouter(client)} />
  </StrictMode>,
);
