// Runs an agent in folders of its own, with nothing of this machine's settings and keys, and gives
// what it printed: the JSON of each line.
import { spawn } from "node:child_process";
import { mkdtemp, mkdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

export const AGENT = "agent";
export const installed = (...parts) => path.join(import.meta.dirname, "node_modules", ...parts);

const LIMIT_MS = 60_000;

export async function events(program, given, environment, files = {}) {
  const home = await mkdtemp(path.join(tmpdir(), "hearth-agent-"));
  try {
    const work = path.join(home, "work");
    await mkdir(work);
    for (const [name, content] of Object.entries(files)) {
      await mkdir(path.dirname(path.join(home, name)), { recursive: true });
      await writeFile(path.join(home, name), content);
    }
    const child = spawn(program, given, {
      cwd: work,
      env: { PATH: process.env.PATH, HOME: home, LANG: "C.UTF-8", ...environment },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: LIMIT_MS,
    });
    let [out, told] = ["", ""];
    child.stdout.on("data", (piece) => { out += piece; });
    child.stderr.on("data", (piece) => { told += piece; });
    const code = await new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", resolve);
    });
    const lines = out.split("\n").filter((line) => line.startsWith("{"));
    if (!lines.length) throw new Error(`ended with ${code}: ${out}${told}`);
    return lines.map((line) => JSON.parse(line));
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

export const called = (name, given) =>
  `<tool_call>${JSON.stringify({ name, arguments: given })}</tool_call>`;
