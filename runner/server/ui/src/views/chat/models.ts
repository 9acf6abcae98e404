// The models that can be talked to, and what the page has to know of them.
import { signal } from "@preact/signals";
import { json } from "../../api.ts";

export interface Tag {
  name: string;
  size: number;
  details: { parameter_size: string; quantization_level: string; context_length?: number };
  capabilities: string[];
}

export interface Shown {
  system: string;
  /** What its Modelfile sets, by parameter. */
  defaults: Record<string, string>;
  capabilities: string[];
  contextLength: number;
}

/** null: they are being read. */
export const models = signal<Tag[] | null>(null);
const shown = signal<Record<string, Shown>>({});
const asked = new Set<string>();
/** The context with which a model is loaded, by its name. */
export const loaded = signal<Record<string, number>>({});

export async function readModels(): Promise<void> {
  const { models: found } = await json<{ models: Tag[] }>("api/tags");
  models.value = found.filter((tag) => tag.capabilities.includes("completion"));
}

export async function readLoaded(): Promise<void> {
  const { models: found } = await json<{ models: { name: string; context_length: number }[] }>("api/ps");
  loaded.value = Object.fromEntries(found.map((model) => [model.name, model.context_length]));
}

/** What a model says of itself; undefined until it is known. */
export function shownModel(name: string): Shown | undefined {
  if (name && !asked.has(name)) {
    asked.add(name);
    void read(name).catch(() => asked.delete(name));
  }
  return shown.value[name];
}

async function read(name: string): Promise<void> {
  const found = await json<{
    system?: string;
    parameters: string;
    capabilities: string[];
    details: { context_length?: number };
    memory?: { context_length?: number } | null;
  }>("api/show", { body: { model: name } });
  const defaults: Record<string, string> = {};
  for (const line of found.parameters.split("\n")) {
    const [parameter, ...value] = line.trim().split(/\s+/);
    if (parameter) defaults[parameter] = [defaults[parameter], value.join(" ")].filter(Boolean).join(", ");
  }
  const contextLength = found.memory?.context_length ?? found.details.context_length ?? 0;
  shown.value = { ...shown.value, [name]: { system: found.system ?? "", defaults, capabilities: found.capabilities, contextLength } };
}
