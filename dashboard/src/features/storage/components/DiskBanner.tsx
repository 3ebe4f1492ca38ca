import { useQuery } from "@tanstack/react-query";
import { IconDatabaseExclamation } from "@tabler/icons-react";
import { bytes } from "@/lib/format";
import { storageQuery } from "../api/storage";
import classes from "./Storage.module.css";

/** On every page, while the coordinator's disk is nearly full. */
export function DiskBanner() {
  const disk = useQuery(storageQuery).data?.disk;
  if (!disk?.low) return null;
  return (
    <div className={classes.banner} role="alert">
      <IconDatabaseExclamation size={17} aria-hidden />
      <span>
        <strong>The coordinator’s disk is nearly full:</strong> {bytes(disk.free_bytes)} free, the watermark is{" "}
        {bytes(disk.low_bytes)}. New points, log lines and traces stay on the nodes until there is room. Jobs keep
        running.
      </span>
    </div>
  );
}
