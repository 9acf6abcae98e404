// Conversations as files: JSON with all that is known of them, Markdown with what is shown.
import { texts } from "../../texts.en.ts";
import { type Answer, type Call, type Conversation, emptySettings, isRunning, newId, newRound, textOf, type Turn } from "./model.ts";
import { pathOf, type Thread, titleOf } from "./threads.ts";

const KIND = "hearth.conversations";
const VERSION = 1;
export const MAX_FILE_BYTES = 100 * 1024 * 1024;
const IMAGE = /^data:image\/(png|jpeg|webp|gif|bmp);base64,[A-Za-z0-9+/=]*$/;
const MARK = /^<!-- hearth:(system|user|assistant)(?: (.*?))? -->$/m;

export function download(name: string, text: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function fileName(title: string, suffix: string): string {
  return `${title.replace(/[^\p{L}\p{N} _-]+/gu, "").trim().slice(0, 60) || "conversation"}.${suffix}`;
}

export function asJson(threads: Thread[]): string {
  const conversations = threads.map(({ conversation, turns }) => ({ conversation, turns: [...turns.values()] }));
  return JSON.stringify({ kind: KIND, version: VERSION, conversations }, null, 1);
}

/** The shown turns. Marks in comments say who speaks, so that it can be read in again. */
export function asMarkdown(thread: Thread): string {
  const { title, settings } = thread.conversation;
  const parts = [`# ${title}`];
  const add = (mark: string, heading: string, text: string) => parts.push(`<!-- hearth:${mark} -->`, `**${heading}**`, escaped(text));
  if (settings.system.trim()) add("system", texts.chat.system, settings.system);
  for (const turn of pathOf(thread)) {
    if (turn.role === "user") add("user", texts.chat.you, [...turn.images.map((_, at) => `*(${texts.chat.image(at + 1)})*`), turn.text].join("\n\n"));
    else for (const answer of turn.answers) add(`assistant ${answer.model}`, answer.model, textOf(answer));
  }
  return `${parts.join("\n\n")}\n`;
}

function escaped(text: string): string {
  return text.replaceAll("<!-- hearth:", "<!-- \\hearth:");
}

/** The conversations in a file. Raises an error with what is wrong for one that has none. */
export function read(name: string, text: string): Thread[] {
  if (/\.(md|markdown)$/i.test(name)) return [readMarkdown(name, text)];
  let given: unknown;
  try {
    given = JSON.parse(text);
  } catch {
    throw new Error(texts.chat.notReadable(name));
  }
  const { kind, version, conversations } = (given ?? {}) as Record<string, unknown>;
  if (kind !== KIND || version !== VERSION || !Array.isArray(conversations)) throw new Error(texts.chat.notReadable(name));
  return conversations.map(readThread);
}

function readMarkdown(name: string, text: string): Thread {
  const [head = "", ...rest] = text.split(MARK);
  if (rest.length < 3) throw new Error(texts.chat.notReadable(name));
  const thread = emptyThread(/^# (.+)$/m.exec(head)?.[1] ?? name);
  let parent: string | null = null;
  for (let at = 0; at + 2 < rest.length; at += 3) {
    const [role, model = ""] = [rest[at], rest[at + 1]];
    const said = rest[at + 2]!.replace(/^\s*\*\*[^\n]*\*\*\n+/, "").trim().replaceAll("<!-- \\hearth:", "<!-- hearth:");
    if (role === "system") {
      thread.conversation.settings.system = said;
      continue;
    }
    const before: Turn | undefined = parent === null ? undefined : thread.turns.get(parent);
    const answer: Answer = { model, rounds: [{ ...newRound(), text: said }], state: "done", tokens: 0 };
    if (role === "assistant" && before?.role === "assistant") {
      before.answers.push(answer);
      continue;
    }
    const turn: { id: string; conversation: string; parent: string | null; at: number } = { id: newId(), conversation: thread.conversation.id, parent, at: at + 1 };
    thread.turns.set(turn.id, role === "user" ? { ...turn, role, text: said, images: [] } : { ...turn, role: "assistant", answers: [answer] });
    if (role === "assistant") thread.conversation.settings.model ||= model;
    parent = turn.id;
  }
  return thread;
}

function emptyThread(title: string): Thread {
  const now = Date.now();
  const conversation: Conversation = { id: newId(), title: titleOf(title), created: now, updated: now, settings: emptySettings(), chosen: {} };
  return { conversation, turns: new Map() };
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const figure = (value: unknown): number => (typeof value === "number" && Number.isFinite(value) ? value : 0);
const list = (value: unknown): Record<string, unknown>[] => (Array.isArray(value) ? value.filter((each) => each && typeof each === "object") : []);

/** Take nothing from a file but what has the right form; ids are given anew. */
function readThread(given: unknown): Thread {
  const { conversation = {}, turns } = (given ?? {}) as { conversation?: Record<string, unknown>; turns?: unknown };
  const thread = emptyThread(text(conversation.title));
  const kept = thread.conversation;
  kept.created = figure(conversation.created) || kept.created;
  kept.updated = figure(conversation.updated) || kept.updated;
  const settings = (conversation.settings ?? {}) as Record<string, unknown>;
  for (const name of ["model", "second", "system", "reasoning", "schema"] as const) kept.settings[name] = text(settings[name]);
  for (const [name, value] of Object.entries((settings.parameters ?? {}) as object)) {
    if (typeof value === "number" && /^(temperature|top_p|top_k|min_p|repeat_penalty|seed|num_ctx|max_tokens)$/.test(name)) Object.assign(kept.settings.parameters, { [name]: value });
  }
  const ids = new Map(list(turns).map((turn) => [text(turn.id), newId()]));
  for (const turn of list(turns)) {
    const head = { id: ids.get(text(turn.id))!, conversation: kept.id, parent: ids.get(text(turn.parent)) ?? null, at: figure(turn.at) };
    const images = Array.isArray(turn.images) ? turn.images.map(text).filter((url) => IMAGE.test(url)) : [];
    if (turn.role === "user") thread.turns.set(head.id, { ...head, role: "user", text: text(turn.text), images });
    else if (list(turn.answers).length) thread.turns.set(head.id, { ...head, role: "assistant", answers: list(turn.answers).map(readAnswer) });
  }
  for (const [parent, child] of Object.entries((conversation.chosen ?? {}) as object)) {
    const found = ids.get(text(child));
    if (found) kept.chosen[parent ? (ids.get(parent) ?? "") : ""] = found;
  }
  return thread;
}

function readAnswer(given: Record<string, unknown>): Answer {
  const rounds = list(given.rounds).map((round) => ({
    text: text(round.text),
    reasoning: text(round.reasoning),
    reasoningMs: figure(round.reasoningMs),
    calls: list(round.calls).map(readCall),
  }));
  const stats = given.stats as Record<string, unknown> | undefined;
  const answer: Answer = {
    model: text(given.model),
    rounds: rounds.length ? rounds : [newRound()],
    state: text(given.state) as Answer["state"],
    tokens: figure(given.tokens),
    json: given.json === true,
    reason: text(given.reason),
  };
  if (isRunning(answer) || !["done", "stopped", "lost", "failed"].includes(answer.state)) answer.state = "stopped";
  if (stats) answer.stats = { prompt: figure(stats.prompt), cached: figure(stats.cached), completion: figure(stats.completion), perSecond: figure(stats.perSecond), promptMs: figure(stats.promptMs), ms: figure(stats.ms) };
  return answer;
}

function readCall(given: Record<string, unknown>): Call {
  const state = ["done", "failed", "refused"].includes(text(given.state)) ? (text(given.state) as Call["state"]) : "refused";
  return { id: text(given.id), name: text(given.name), arguments: text(given.arguments), state, result: text(given.result) };
}
