import classes from "./Files.module.css";

/** Where one is: each folder above leads back to it. */
export function Breadcrumb({ folder, onFolder }: { folder: string; onFolder(folder: string): void }) {
  const parts = folder === "" ? [] : folder.split("/");
  return (
    <nav aria-label="Folder">
      <ol className={classes.crumbs}>
        {["Artifacts", ...parts].map((part, depth) => (
          <li key={depth}>
            {depth === parts.length ? (
              <span aria-current="page">{part}</span>
            ) : (
              <button type="button" className={classes.crumb} onClick={() => onFolder(parts.slice(0, depth).join("/"))}>
                {part}
              </button>
            )}
          </li>
        ))}
      </ol>
    </nav>
  );
}
