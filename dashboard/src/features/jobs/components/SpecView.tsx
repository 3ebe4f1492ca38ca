import { Button } from "@mantine/core";
import { IconCopyPlus } from "@tabler/icons-react";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { CopyAction } from "@/components/ui/CopyBox";
import { Panel } from "@/components/ui/Panel";
import { PlanChoice } from "@/components/ui/PlanChoice";
import { CodeFacts } from "@/features/jobs/components/CodeFacts";
import { PackageFacts } from "@/features/jobs/components/PackageFacts";
import { toYaml } from "@/lib/spec/yaml";
import type { Job } from "@/lib/types";
import classes from "./Jobs.module.css";

/** The effective spec: every default filled in; and the plan in it, where it was left to us. */
export function SpecView({ job }: { job: Job }) {
  const text = useMemo(() => toYaml(job.spec ?? job.stored_spec), [job.spec, job.stored_spec]);
  const again = (
    <Button
      component={Link}
      to="/jobs/new"
      search={{ from: job.id } as never}
      size="compact-xs"
      variant="default"
      leftSection={<IconCopyPlus size={13} />}
    >
      Edit and resubmit
    </Button>
  );
  return (
    <div className="stack">
      {job.choice && (
        <Panel title="Plan chosen automatically">
          <PlanChoice choice={job.choice} />
        </Panel>
      )}
      {job.spec?.environment?.code && <CodeFacts code={job.spec.environment.code} />}
      {job.spec?.environment && <PackageFacts environment={job.spec.environment} />}
      <Panel
        title="Effective spec"
        actions={
          <>
            {again}
            <CopyAction value={text} label="Copy YAML" />
          </>
        }
        flush
      >
        {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard */}
        <pre className={classes.spec} tabIndex={0} role="region" aria-label="Effective spec as YAML">
          {text}
        </pre>
      </Panel>
    </div>
  );
}
