// The daemon, as the page asks it: same origin only, with the key where there is one.
import { signal } from "@preact/signals";
import { texts } from "./texts.en.ts";

const KEPT_KEY = "hearth.key";

/** The API key: in memory, and in the browser only where the user wants it. */
export const apiKey = signal(localStorage.getItem(KEPT_KEY) ?? "");

/** Whether the daemon wants a key that it does not have; the page asks for one then. */
export const needsKey = signal(false);

/** Counts the keys that were given: what failed for want of one is asked again when it changes. */
export const keysGiven = signal(0);

export function useKey(key: string, remember: boolean): void {
  apiKey.value = key;
  if (remember) localStorage.setItem(KEPT_KEY, key);
  else localStorage.removeItem(KEPT_KEY);
  needsKey.value = false;
  keysGiven.value += 1;
}

/** What the daemon refused, in its words. status 0: it did not answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code = "",
    /** The whole body, for those who know more of it. */
    readonly body: unknown = null,
  ) {
    super(message);
  }
}

export interface Asked {
  method?: string;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is, in place of body. */
  raw?: BodyInit;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Ask the daemon. Raises ApiError for every answer that is no success; AbortError when aborted. */
export async function ask(path: string, asked: Asked = {}): Promise<Response> {
  const headers: Record<string, string> = { ...asked.headers };
  if (apiKey.value) headers["authorization"] = `Bearer ${apiKey.value}`;
  if (asked.body !== undefined) headers["content-type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(path.replace(/^\//, ""), {
      method: asked.method ?? (asked.body === undefined && asked.raw === undefined ? "GET" : "POST"),
      headers,
      body: asked.body === undefined ? asked.raw : JSON.stringify(asked.body),
      signal: asked.signal,
      cache: "no-store",
      redirect: "error",
    });
  } catch (error) {
    if (asked.signal?.aborted) throw error;
    throw new ApiError(0, texts.errors.unreachable);
  }
  if (answer.ok) return answer;
  const failure = await failureOf(answer);
  if (failure.status === 401) needsKey.value = true;
  throw failure;
}

/** The JSON that the daemon answers. */
export async function json<T>(path: string, asked: Asked = {}): Promise<T> {
  return (await ask(path, asked)).json() as Promise<T>;
}

async function failureOf(answer: Response): Promise<ApiError> {
  const text = await answer.text().catch(() => "");
  let body: unknown = null;
  try {
    body = JSON.parse(text);
  } catch {
    return new ApiError(answer.status, texts.errors.status(answer.status));
  }
  const { message, code } = messageOf(body);
  return new ApiError(answer.status, message || texts.errors.status(answer.status), code, body);
}

/** What an error body says, in OpenAI's form, Ollama's or Anthropic's. */
export function messageOf(body: unknown): { message: string; code: string } {
  const error = (body as { error?: unknown } | null)?.error;
  if (typeof error === "string") return { message: error, code: "" };
  const { message = "", code = "" } = (error ?? {}) as { message?: string; code?: string | number };
  return { message: String(message), code: String(code) };
}

/** The objects of an NDJSON stream, as they come. Raises ApiError for one that is an error. */
export async function* lines<T>(path: string, asked: Asked = {}): AsyncGenerator<T> {
  for await (const { line } of rawLines(await ask(path, asked))) {
    if (!line.trim()) continue;
    const value = JSON.parse(line) as T;
    const { message, code } = messageOf(value);
    if (message) throw new ApiError(200, message, code, value);
    yield value;
  }
}

/** An event of a stream; end: how many bytes of the stream lie before what follows it. */
export interface StreamEvent {
  name: string;
  data: string;
  end: number;
}

/** The events of an SSE answer, whose first byte is number start of the stream. */
export async function* events(answer: Response, start = 0): AsyncGenerator<StreamEvent> {
  let name = "";
  let data: string[] = [];
  for await (const { line, end } of rawLines(answer, start)) {
    if (line === "") {
      if (data.length) yield { name, data: data.join("\n"), end };
      name = "";
      data = [];
    } else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
    else if (line.startsWith("event:")) name = line.slice(6).trim();
  }
}

async function* rawLines(answer: Response, start = 0): AsyncGenerator<{ line: string; end: number }> {
  if (!answer.body) return;
  const decoder = new TextDecoder();
  const reader = answer.body.getReader();
  let rest: Uint8Array = new Uint8Array();
  let end = start;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const bytes = rest.length ? joined(rest, value) : value;
      let from = 0;
      for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, from)) {
        end += at + 1 - from;
        yield { line: decoder.decode(bytes.subarray(from, at)).replace(/\r$/, ""), end };
        from = at + 1;
      }
      rest = bytes.slice(from);
    }
    if (rest.length) yield { line: decoder.decode(rest), end: end + rest.length };
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new ApiError(0, texts.errors.unreachable);
  } finally {
    reader.cancel().catch(() => {});
  }
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array {
  const all = new Uint8Array(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}
