/** A plain tar archive: ustar (POSIX.1-1988), with pax headers (POSIX.1-2001) for names that ustar has no room for. */

export interface TarFile {
  /** Relative to the top of the archive, with "/" between names. */
  path: string;
  content: Blob;
}

const BLOCK = 512;
const LONGEST_NAME = 100;
const encoder = new TextEncoder();

/** The files are read when the archive is: nothing of them is in memory before. */
export function tarOf(files: readonly TarFile[]): Blob {
  const parts = files.flatMap(({ path, content }) => {
    const long = encoder.encode(path).length > LONGEST_NAME || !isAscii(path);
    const record = encoder.encode(paxRecord("path", path));
    const named = long ? [header("pax", record.length, "x"), record, padding(record.length)] : [];
    return [...named, header(long ? "long" : path, content.size, "0"), content, padding(content.size)];
  });
  return new Blob([...parts, new Uint8Array(2 * BLOCK)]);
}

function isAscii(text: string): boolean {
  return [...text].every((letter) => letter >= " " && letter <= "~");
}

/** "LENGTH KEY=VALUE\n", whose length in bytes counts itself. */
function paxRecord(key: string, value: string): string {
  const rest = encoder.encode(` ${key}=${value}\n`).length;
  let length = rest + String(rest).length;
  if (String(length).length > String(rest).length) length = rest + String(length).length;
  return `${length} ${key}=${value}\n`;
}

function header(name: string, size: number, type: "0" | "x"): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  const write = (text: string, at: number) => block.set(encoder.encode(text), at);
  write(name, 0);
  write("0000644\0", 100); // mode
  write("0000000\0", 108); // user
  write("0000000\0", 116); // group
  write(`${size.toString(8).padStart(11, "0")}\0`, 124);
  write(`${"0".repeat(11)}\0`, 136); // time: equal folders make equal archives
  write(" ".repeat(8), 148); // the checksum counts itself as blanks
  write(type, 156);
  write("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

function padding(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}
