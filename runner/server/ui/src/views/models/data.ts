// What the daemon says of its models, and how they are loaded.
import { ask, json } from "../../api.ts";

export interface Installed {
  name: string;
  size: number;
  digest: string;
  details: { family: string; parameter_size: string; quantization_level: string; context_length?: number };
  capabilities: string[];
  fault?: string;
  crashes?: string;
}

export interface Running {
  name: string;
  state: "loaded" | "loading";
  expires_at: string;
}

export interface Plan {
  fits: "loaded" | "now" | "after_unloading" | "never";
  needed: number;
  free: number;
  weights: number;
  cache: number;
  compute: number;
  swap: number;
  context_length: number | null;
}

export interface Pull {
  number: number;
  model: string;
  phase: "running" | "paused" | "done" | "failed";
  status: string;
  completed: number | null;
  total: number | null;
  name: string | null;
  error: string | null;
}

export interface Space {
  models: { name: string; size: number; own: number; shared: number }[];
  total: number;
  free: number | null;
}

export interface Library {
  models: Installed[];
  running: Running[];
}

export async function library(): Promise<Library> {
  const [tags, ps] = await Promise.all([json<{ models: Installed[] }>("api/tags"), json<{ models: Running[] }>("api/ps")]);
  return { models: tags.models, running: ps.models };
}

export const planOf = (model: string, numCtx?: number) => json<Plan>("api/plan", { body: { model, options: numCtx ? { num_ctx: numCtx } : {} } });
export const pulls = async () => (await json<{ pulls: Pull[] }>("api/pulls")).pulls;
export const space = () => json<Space>("api/du");

const PINNED_S = 10 * 365 * 86400;

export const isPinned = (running: Running) => (Date.parse(running.expires_at) - Date.now()) / 1000 > PINNED_S;

/** Load a model. keepAlive: seconds, -1: for ever. */
export async function load(model: Installed, keepAlive?: number, numCtx?: number): Promise<void> {
  const body = { model: model.name, keep_alive: keepAlive, options: numCtx ? { num_ctx: numCtx } : undefined, stream: false };
  if (model.capabilities.includes("completion")) await ask("api/generate", { body });
  else if (model.capabilities.includes("embedding")) await ask("api/embed", { body: { ...body, input: [] } });
  else await ask("models/load", { body: { model: model.name } });
}

export const unload = (model: string) => ask("models/unload", { body: { model } });
