// Conversations in the browser's IndexedDB: they stay on this machine, need no route or quota of the
// daemon, outlive it and are nobody else's, also where several people share one daemon.
import type { Conversation, Turn } from "./model.ts";

let opened: Promise<IDBDatabase> | null = null;

function open(): Promise<IDBDatabase> {
  opened ??= new Promise((done, failed) => {
    const request = indexedDB.open("hearth", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("conversations", { keyPath: "id" });
      const turns = request.result.createObjectStore("turns", { keyPath: "id" });
      turns.createIndex("conversation", "conversation");
      turns.createIndex("live", "live");
    };
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error ?? new Error("IndexedDB"));
  });
  return opened;
}

async function within<T>(mode: IDBTransactionMode, work: (conversations: IDBObjectStore, turns: IDBObjectStore) => IDBRequest<T> | void): Promise<T> {
  const transaction = (await open()).transaction(["conversations", "turns"], mode);
  const request = work(transaction.objectStore("conversations"), transaction.objectStore("turns"));
  return new Promise((done, failed) => {
    transaction.oncomplete = () => done((request ? request.result : undefined) as T);
    transaction.onerror = transaction.onabort = () => failed(transaction.error ?? new Error("IndexedDB"));
  });
}

export function allConversations(): Promise<Conversation[]> {
  return within<Conversation[]>("readonly", (conversations) => conversations.getAll());
}

export function turnsOf(conversation: string): Promise<Turn[]> {
  return within<Turn[]>("readonly", (_, turns) => turns.index("conversation").getAll(conversation));
}

/** The turns whose answers were being made when the page went away. */
export function liveTurns(): Promise<Turn[]> {
  return within<Turn[]>("readonly", (_, turns) => turns.index("live").getAll(1));
}

export async function keep(conversation: Conversation | null, kept: Turn[] = []): Promise<void> {
  await within<void>("readwrite", (conversations, turns) => {
    if (conversation) conversations.put(conversation);
    for (const turn of kept) turns.put(turn);
  });
}

export async function forget(id: string): Promise<void> {
  await within<void>("readwrite", (conversations, turns) => {
    conversations.delete(id);
    const request = turns.index("conversation").openKeyCursor(id);
    request.onsuccess = () => {
      if (!request.result) return;
      turns.delete(request.result.primaryKey);
      request.result.continue();
    };
  });
}

/** The conversations in one of whose turns matches finds something, one turn after the other. */
export async function searchTurns(matches: (turn: Turn) => boolean): Promise<Set<string>> {
  const found = new Set<string>();
  await within<void>("readonly", (_, turns) => {
    const request = turns.openCursor();
    request.onsuccess = () => {
      if (!request.result) return;
      const turn = request.result.value as Turn;
      if (!found.has(turn.conversation) && matches(turn)) found.add(turn.conversation);
      request.result.continue();
    };
  });
  return found;
}
