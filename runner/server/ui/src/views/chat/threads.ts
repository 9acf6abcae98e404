// The conversations of this browser, and the turns of those that were opened. Turns are changed in
// place; who shows one reads its version, who shows the tree reads structure.
import { signal, type Signal } from "@preact/signals";
import { toastError } from "../../components/toast.tsx";
import { go, place } from "../../router.ts";
import { texts } from "../../texts.en.ts";
import * as database from "./database.ts";
import { type AssistantTurn, type ChatSettings, type Conversation, emptySettings, newId, type Turn, type UserTurn } from "./model.ts";

const LAST_SETTINGS = "hearth.chat";
const MAX_TITLE_CHARS = 80;

export interface Thread {
  conversation: Conversation;
  turns: Map<string, Turn>;
}

/** All, the newest first. null: they are being read. */
export const conversations = signal<Conversation[] | null>(null);
/** The one that is shown; null for one that has not begun. */
export const current = signal<Thread | null>(null);
/** The settings of the next conversation. */
export const draftSettings = signal<ChatSettings>(emptySettings());
export const structure = signal(0);

const threads = new Map<string, Thread>();
const versions = new Map<string, Signal<number>>();
const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("hearth.chat");
if (channel) channel.onmessage = ({ data }) => void changedElsewhere(String(data));

export function versionOf(turn: string): Signal<number> {
  let found = versions.get(turn);
  if (!found) versions.set(turn, (found = signal(0)));
  return found;
}

/** Moves on when counts of tokens are to be shown again. */
export const counts = signal(0);

export function touch(turn: Turn): void {
  versionOf(turn.id).value += 1;
}

/** Read what is kept. Raises nothing: without a database conversations last as long as the page. */
export async function begin(): Promise<void> {
  try {
    draftSettings.value = { ...emptySettings(), ...JSON.parse(localStorage.getItem(LAST_SETTINGS) ?? "{}") };
  } catch {
    localStorage.removeItem(LAST_SETTINGS);
  }
  try {
    const kept = await database.allConversations();
    const begun = conversations.value ?? []; // while they were read
    conversations.value = sorted([...begun, ...kept.filter((each) => !begun.some((other) => other.id === each.id))]);
  } catch {
    conversations.value ??= [];
    toastError(texts.chat.notKept);
  }
}

function sorted(list: Conversation[]): Conversation[] {
  return list.toSorted((one, other) => other.updated - one.updated);
}

export async function threadOf(id: string): Promise<Thread | null> {
  const known = threads.get(id);
  if (known) return known;
  const conversation = conversations.value?.find((each) => each.id === id);
  if (!conversation) return null;
  const turns = await database.turnsOf(id);
  const raced = threads.get(id);
  if (raced) return raced;
  const thread = { conversation, turns: new Map(turns.map((turn) => [turn.id, turn])) };
  threads.set(id, thread);
  return thread;
}

/** Show a conversation; "" for a new one. */
export async function show(id: string): Promise<void> {
  if (!id) {
    current.value = null;
    return;
  }
  const thread = await threadOf(id).catch(() => null);
  if (place.value.view !== "chat" || place.value.item !== id) return;
  if (thread) current.value = thread;
  else go("chat", "", true);
}

/** A conversation that begins, and is shown. */
export function create(title: string): Thread {
  const now = Date.now();
  const conversation: Conversation = { id: newId(), title: titleOf(title), created: now, updated: now, settings: structuredClone(draftSettings.value), chosen: {} };
  const thread = { conversation, turns: new Map<string, Turn>() };
  threads.set(conversation.id, thread);
  conversations.value = [conversation, ...(conversations.value ?? [])];
  current.value = thread;
  draftSettings.value = nextSettings(conversation.settings);
  go("chat", conversation.id);
  return thread;
}

export function titleOf(text: string): string {
  const line = text.trim().split("\n")[0]!.trim();
  return (line.length > MAX_TITLE_CHARS ? `${line.slice(0, MAX_TITLE_CHARS)}…` : line) || texts.chat.untitled;
}

/** Keep a conversation and some of its turns. */
export function save(thread: Thread, turns: Turn[] = [], tell = true): void {
  if (!threads.has(thread.conversation.id)) return;
  const kept = () => tell && channel?.postMessage(thread.conversation.id);
  database.keep(thread.conversation, turns).then(kept, () => toastError(texts.chat.notKept));
}

/** Note that something was said now. */
export function bump(thread: Thread): void {
  thread.conversation.updated = Date.now();
  conversations.value = sorted(conversations.value ?? []);
}

/** Shown once it is kept: so are removals. */
export async function rename(id: string, title: string): Promise<void> {
  const thread = await threadOf(id);
  if (!thread) return;
  const renamed = { title: titleOf(title) };
  await database.keep({ ...thread.conversation, ...renamed }).catch(() => toastError(texts.chat.notKept));
  Object.assign(thread.conversation, renamed);
  conversations.value = [...(conversations.value ?? [])];
  channel?.postMessage(id);
}

export async function remove(id: string): Promise<void> {
  threads.delete(id);
  await database.forget(id).catch(toastError);
  conversations.value = (conversations.value ?? []).filter((each) => each.id !== id);
  if (current.value?.conversation.id === id) go("chat", "", true);
  channel?.postMessage(id);
}

/** Take in conversations that were read from a file. */
export async function adopt(thread: Thread): Promise<void> {
  await database.keep(thread.conversation, [...thread.turns.values()]);
  threads.set(thread.conversation.id, thread);
  conversations.value = sorted([...(conversations.value ?? []), thread.conversation]);
}

/** The settings that count: of the conversation that is shown, or of the next one. */
export function settingsNow(): ChatSettings {
  structure.value;
  return current.value?.conversation.settings ?? draftSettings.value;
}

export function changeSettings(change: Partial<ChatSettings>): void {
  const thread = current.value;
  if (thread) {
    Object.assign(thread.conversation.settings, change);
    save(thread);
    draftSettings.value = nextSettings(thread.conversation.settings);
  } else draftSettings.value = { ...draftSettings.value, ...change };
  const { model, second } = draftSettings.value;
  localStorage.setItem(LAST_SETTINGS, JSON.stringify({ model, second }));
  structure.value += 1;
}

/** A new conversation begins with the models of the last one, and with nothing else of it. */
function nextSettings({ model, second }: ChatSettings): ChatSettings {
  return { ...emptySettings(model), second };
}

export function childrenOf(thread: Thread, parent: string | null): Turn[] {
  return [...thread.turns.values()].filter((turn) => turn.parent === parent).sort((one, other) => one.at - other.at);
}

/** The turns that are shown, from the first on. until: no further than this one. */
export function pathOf(thread: Thread, until?: string): Turn[] {
  const followers = new Map<string, Turn[]>();
  for (const turn of thread.turns.values()) {
    const key = turn.parent ?? "";
    followers.set(key, [...(followers.get(key) ?? []), turn]);
  }
  const path: Turn[] = [];
  for (let key = ""; ; ) {
    const found = followers.get(key)?.sort((one, other) => one.at - other.at);
    const turn = found?.find((each) => each.id === thread.conversation.chosen[key]) ?? found?.at(-1);
    if (!turn || path.includes(turn)) return path;
    path.push(turn);
    if (turn.id === until) return path;
    key = turn.id;
  }
}

/** Add a turn after another, and show it. */
export function append<T extends UserTurn | AssistantTurn>(thread: Thread, turn: T): T {
  const last = Math.max(0, ...Array.from(thread.turns.values(), (each) => each.at));
  turn.at = Math.max(Date.now(), last + 1);
  thread.turns.set(turn.id, turn);
  thread.conversation.chosen[turn.parent ?? ""] = turn.id;
  bump(thread);
  save(thread, [turn]);
  structure.value += 1;
  return turn;
}

/** Show another of the turns that follow the same one. */
export function choose(thread: Thread, turn: Turn): void {
  thread.conversation.chosen[turn.parent ?? ""] = turn.id;
  save(thread);
  structure.value += 1;
}

async function changedElsewhere(id: string): Promise<void> {
  const thread = threads.get(id);
  if (thread && [...thread.turns.values()].some((turn) => turn.live)) return;
  threads.delete(id);
  conversations.value = sorted(await database.allConversations().catch(() => []));
  if (current.value?.conversation.id === id) await show(id);
  structure.value += 1;
}

/** Go on with one of two answers. */
export function keepOnly(thread: Thread, turn: AssistantTurn, lane: number): void {
  turn.answers = [turn.answers[lane]!];
  thread.conversation.settings.model = turn.answers[0]!.model;
  thread.conversation.settings.second = "";
  draftSettings.value = nextSettings(thread.conversation.settings);
  save(thread, [turn]);
  touch(turn);
  structure.value += 1;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const count = (value: number): string => whole.format(value);
export const figure = (value: number): string => short.format(value);
