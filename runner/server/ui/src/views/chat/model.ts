// What a conversation is: turns in a tree, of which a path is shown. A turn of the assistant has an
// answer for each model that was asked; an answer has rounds, one more after each use of tools.

export interface Call {
  id: string;
  name: string;
  arguments: string;
  /** asking: the user is to say whether it may be made. */
  state: "asking" | "running" | "done" | "failed" | "refused";
  result?: string;
}

export interface Round {
  text: string;
  reasoning: string;
  reasoningMs?: number;
  calls: Call[];
}

export interface Stats {
  prompt: number;
  cached: number;
  completion: number;
  perSecond: number;
  promptMs: number;
  ms: number;
}

/** asking: for leave to call tools. lost: its end was not to be had. */
export type AnswerState = "waiting" | "streaming" | "reconnecting" | "asking" | "done" | "stopped" | "lost" | "failed";

export interface Answer {
  model: string;
  rounds: Round[];
  state: AnswerState;
  error?: string;
  /** Why the model ended: stop, length. */
  reason?: string;
  stats?: Stats;
  /** Tokens so far: of the prompt, and counted as they come. */
  promptTokens?: number;
  tokens: number;
  /** The answer is JSON, by a schema. */
  json?: boolean;
  /** The daemon's name for its stream, and how many bytes of it have been read. */
  stream?: { id: string; offset: number };
}

interface TurnHead {
  id: string;
  conversation: string;
  parent: string | null;
  at: number;
  /** 1 while an answer is being made, by which it is found after a reload. */
  live?: 1;
}

export interface UserTurn extends TurnHead {
  role: "user";
  text: string;
  images: string[];
}

export interface AssistantTurn extends TurnHead {
  role: "assistant";
  answers: Answer[];
}

export type Turn = UserTurn | AssistantTurn;

export interface Parameters {
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repeat_penalty?: number;
  seed?: number;
  num_ctx?: number;
  max_tokens?: number;
  stop?: string[];
}

export interface ChatSettings {
  model: string;
  /** A second model that answers beside the first. */
  second: string;
  system: string;
  parameters: Parameters;
  /** "" as the model has it, "none", "low", "medium", "high". */
  reasoning: string;
  /** A JSON schema as the user wrote it, or "". */
  schema: string;
  /** MCP servers whose tools are offered. */
  servers: string[];
}

export interface Conversation {
  id: string;
  title: string;
  created: number;
  updated: number;
  settings: ChatSettings;
  /** Which of a turn's followers is shown; "" for the first turn. */
  chosen: Record<string, string>;
}

export const PARAMETER_RANGES: Record<Exclude<keyof Parameters, "stop">, { min: number; max?: number; step: number | "any" }> = {
  temperature: { min: 0, max: 5, step: "any" },
  top_p: { min: 0, max: 1, step: "any" },
  top_k: { min: 0, step: 1 },
  min_p: { min: 0, max: 1, step: "any" },
  repeat_penalty: { min: 0.01, max: 100, step: "any" },
  seed: { min: 0, step: 1 },
  num_ctx: { min: 1, step: 1 },
  max_tokens: { min: 1, step: 1 },
};

export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newAnswer(model: string, json: boolean): Answer {
  return { model, rounds: [newRound()], state: "waiting", tokens: 0, ...(json ? { json } : {}) };
}

export function newRound(): Round {
  return { text: "", reasoning: "", calls: [] };
}

export function isRunning(answer: Answer): boolean {
  return ["waiting", "streaming", "reconnecting", "asking"].includes(answer.state);
}

export function textOf(answer: Answer): string {
  return answer.rounds
    .map((round) => round.text)
    .filter(Boolean)
    .join("\n\n");
}

export function emptySettings(model = ""): ChatSettings {
  return { model, second: "", system: "", parameters: {}, reasoning: "", schema: "", servers: [] };
}
