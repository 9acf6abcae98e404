// Answers in the making. The daemon keeps each stream under a name, so that one whose connection was
// lost, or whose page was reloaded, is read on from the byte where it stopped.
import { ApiError, ask, events, json, messageOf } from "../../api.ts";
import { texts } from "../../texts.en.ts";
import { liveTurns } from "./database.ts";
import { type Answer, type AssistantTurn, type Call, isRunning, newAnswer, newId, newRound, type Round } from "./model.ts";
import { answered, bodyOf, messagesOf, type OfferedTool } from "./request.ts";
import { append, counts, pathOf, save, structure, threadOf, touch, type Thread } from "./threads.ts";

const SAVE_EVERY_MS = 1000;
const MAX_ROUNDS = 24;
const RETRY_MS = [250, 500, 1000, 2000, 4000];
/** How much longer than it took to draw nothing is drawn. */
const IDLE_SHARE = 3;
/** Text is drawn 15 times a second: each time leaves the browser some 100 kB to collect. */
const DRAW_EVERY_MS = 66;
const COUNT_EVERY_MS = 250;
const GIVE_UP_MS = 15 * 60 * 1000;

interface Chunk {
  error?: unknown;
  choices?: { delta?: Delta; finish_reason?: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number } | null;
  timings?: { cache_n: number; predicted_per_second: number; predicted_ms: number; prompt_ms: number };
  prompt_progress?: { total: number };
}

interface Delta {
  content?: string | null;
  reasoning_content?: string;
  tool_calls?: { index: number; id?: string; function?: { name?: string; arguments?: string } }[];
}

/** An answer with its place. */
interface Made {
  thread: Thread;
  turn: AssistantTurn;
  answer: Answer;
  lane: number;
}

const stops = new Map<Answer, AbortController>();
const offered = new Map<string, OfferedTool[]>();
let drawing = false;
let drawMs = 0;
let lastDrawn = 0;
let lastCounted = 0;
const toDraw = new Set<AssistantTurn>();

/** Have the conversation's models answer a turn. */
export function answer(thread: Thread, parent: string): void {
  const { settings } = thread.conversation;
  const models = settings.second ? [settings.model, settings.second] : [settings.model];
  const answers = models.map((model) => newAnswer(model, Boolean(settings.schema.trim())));
  const turn = append<AssistantTurn>(thread, { id: newId(), conversation: thread.conversation.id, parent, at: 0, role: "assistant", answers, live: 1 });
  turn.answers.forEach((each, lane) => void proceed({ thread, turn, answer: each, lane }));
}

/** Go on with an answer that ended before its time. */
export function goOn(thread: Thread, turn: AssistantTurn, lane: number): void {
  const answer = turn.answers[lane]!;
  answer.state = "waiting";
  answer.error = answer.reason = answer.stream = undefined;
  turn.live = 1;
  void proceed({ thread, turn, answer, lane });
}

/** End what is being made of a turn. */
export function stop(thread: Thread, turn: AssistantTurn): void {
  for (const answer of turn.answers.filter(isRunning)) {
    stops.get(answer)?.abort();
    if (answer.stream) ask(`v1/stream?conv_id=${encodeURIComponent(answer.stream.id)}`, { method: "DELETE" }).catch(() => {});
    end({ thread, turn, answer, lane: 0 }, "stopped");
  }
}

/** Say whether a call may be made, and go on once all are settled. */
export async function decide(thread: Thread, turn: AssistantTurn, lane: number, call: Call, allowed: boolean): Promise<void> {
  const made = { thread, turn, answer: turn.answers[lane]!, lane };
  if (allowed) await run(made, call);
  else {
    call.state = "refused";
    call.result = texts.chat.refusedResult;
  }
  touch(turn);
  await settled(made);
}

/** Read on what was being read when the page went away. */
export async function resumeAll(): Promise<void> {
  for (const { conversation, id } of await liveTurns().catch(() => [])) {
    const thread = await threadOf(conversation);
    const turn = thread?.turns.get(id);
    if (!thread || turn?.role !== "assistant") continue;
    turn.answers.forEach((each, lane) => {
      const made = { thread, turn, answer: each, lane };
      for (const call of each.rounds.at(-1)!.calls) if (call.state === "running") call.state = "asking";
      if (["waiting", "streaming", "reconnecting"].includes(each.state)) void once(each, () => proceed(made));
    });
  }
}

/** Run work unless another tab of this browser reads the same stream. */
async function once(answer: Answer, work: () => Promise<void>): Promise<void> {
  if (!navigator.locks || !answer.stream) return work();
  await navigator.locks.request(`hearth.${answer.stream.id}`, { ifAvailable: true }, (lock) => (lock ? work() : undefined));
}

/** Have the last round of an answer made, or read on; then whatever follows from it. */
async function proceed(made: Made): Promise<void> {
  const { answer, thread, turn } = made;
  const controller = new AbortController();
  stops.set(answer, controller);
  try {
    const first = answer.stream ? null : await begin(made, controller.signal);
    await follow(made, first, controller.signal);
    const { calls } = answer.rounds.at(-1)!;
    answer.stream = undefined;
    if (calls.length) await callAll(made);
    else end(made, "done");
  } catch (error) {
    if (controller.signal.aborted) return;
    const lost = error instanceof ApiError && error.status === 404 && error.code === "stream_not_found";
    answer.error = lost ? texts.chat.lost : error instanceof Error ? error.message : String(error);
    end(made, lost ? "lost" : "failed");
  } finally {
    if (stops.get(answer) === controller) stops.delete(answer);
    save(thread, [turn], !turn.live);
  }
}

async function begin(made: Made, signal: AbortSignal): Promise<Response | null> {
  const { thread, turn, answer, lane } = made;
  const { settings } = thread.conversation;
  answer.state = "waiting";
  redraw(turn);
  const tools = await toolsOf(settings.servers, signal);
  const before = pathOf(thread, turn.parent ?? "");
  const messages = [...messagesOf(settings, before, lane), ...answered(answer)];
  const body = bodyOf(settings, answer.model, messages, tools);
  if (answer.rounds.at(-1)!.text) body.continue_final_message = true;
  answer.stream = { id: `page-${newId()}`, offset: 0 };
  save(thread, [turn], false);
  try {
    return await ask("v1/chat/completions", { body, headers: { "x-conversation-id": answer.stream.id }, signal });
  } catch (error) {
    if (signal.aborted || !(error instanceof ApiError) || error.status !== 0) throw error;
    return null;
  }
}

/** The tools of servers, which are asked for once. */
async function toolsOf(servers: string[], signal?: AbortSignal): Promise<OfferedTool[]> {
  if (!servers.length) return [];
  const key = servers.join("\n");
  const known = offered.get(key);
  if (known) return known;
  const { tools } = await json<{ tools: OfferedTool[] }>("api/mcp/tools", { body: { servers }, signal });
  offered.set(key, tools);
  return tools;
}

/** Read the stream to its end, over as many connections as it takes. */
async function follow(made: Made, first: Response | null, signal: AbortSignal): Promise<void> {
  const { answer, turn } = made;
  let response = first;
  let tries = 0;
  let lostAt = 0;
  for (;;) {
    if (response) {
      lostAt = tries = 0;
      if (await read(made, response)) return;
      if (signal.aborted) throw new DOMException("", "AbortError");
    }
    lostAt ||= Date.now();
    answer.state = "reconnecting";
    redraw(turn);
    await pause(RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)]!, signal);
    try {
      const { id, offset } = answer.stream!;
      response = await ask(`v1/stream?conv_id=${encodeURIComponent(id)}&from=${offset}`, { signal });
    } catch (error) {
      response = null;
      if (signal.aborted || !(error instanceof ApiError)) throw error;
      // A daemon that has not heard of it, and from which nothing has come, is asked again.
      if (error.status === 404 && answer.stream!.offset === 0 && answer.tokens === 0) response = await begin(made, signal);
      else if (![0, 502, 503, 504].includes(error.status) || Date.now() - lostAt > GIVE_UP_MS) throw error;
    }
  }
}

/** Take in what comes of a stream. Whether it came to its end. */
async function read(made: Made, response: Response): Promise<boolean> {
  const { answer, turn, thread } = made;
  const stream = answer.stream!;
  const begun = performance.now();
  const spent = answer.rounds.at(-1)!.reasoningMs ?? 0;
  let saved = begun;
  answer.state = answer.tokens ? "streaming" : answer.state === "reconnecting" ? "streaming" : "waiting";
  redraw(turn);
  try {
    for await (const { data, end: offset } of events(response, stream.offset)) {
      stream.offset = offset;
      if (data === "[DONE]") return true;
      take(answer, JSON.parse(data) as Chunk, performance.now() - begun + spent);
      redraw(turn);
      if (performance.now() - saved > SAVE_EVERY_MS) {
        saved = performance.now();
        save(thread, [turn], false);
      }
    }
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 0) throw error;
  }
  return false;
}

function take(answer: Answer, chunk: Chunk, elapsedMs: number): void {
  if (chunk.error) {
    const { message, code } = messageOf(chunk);
    throw new ApiError(500, message, code);
  }
  if (chunk.prompt_progress) answer.promptTokens = chunk.prompt_progress.total;
  const choice = chunk.choices?.[0];
  const round = answer.rounds.at(-1)!;
  if (choice?.delta) takeDelta(answer, round, choice.delta, elapsedMs);
  if (choice?.finish_reason) answer.reason = choice.finish_reason;
  if (chunk.usage) takeUsage(answer, chunk);
}

function takeDelta(answer: Answer, round: Round, delta: Delta, elapsedMs: number): void {
  const { content, reasoning_content: reasoning, tool_calls: calls } = delta;
  if (!content && !reasoning && !calls) return;
  answer.tokens += 1;
  answer.state = "streaming";
  if (reasoning) {
    round.reasoning += reasoning;
    round.reasoningMs = elapsedMs;
  }
  if (content) round.text += content.replaceAll("\r", "");
  for (const piece of calls ?? []) {
    const call = (round.calls[piece.index] ??= { id: piece.id ?? newId(), name: "", arguments: "", state: "asking" });
    call.name += piece.function?.name ?? "";
    call.arguments += piece.function?.arguments ?? "";
  }
}

/** Of an answer of several rounds: the tokens of the last prompt, all that were made. */
function takeUsage(answer: Answer, { usage, timings }: Chunk): void {
  const before = answer.stats;
  answer.promptTokens = usage!.prompt_tokens;
  answer.stats = {
    prompt: usage!.prompt_tokens,
    cached: timings?.cache_n ?? 0,
    completion: (before?.completion ?? 0) + usage!.completion_tokens,
    perSecond: timings?.predicted_per_second ?? 0,
    promptMs: timings?.prompt_ms ?? 0,
    ms: (before?.ms ?? 0) + (timings?.predicted_ms ?? 0) + (timings?.prompt_ms ?? 0),
  };
  answer.tokens = answer.stats.completion;
}

/** Make the calls of the last round that need no leave, and ask for the others. */
async function callAll(made: Made): Promise<void> {
  const { answer, thread } = made;
  const tools = await toolsOf(thread.conversation.settings.servers);
  answer.state = "asking";
  const { calls } = answer.rounds.at(-1)!;
  for (const call of calls) {
    const tool = tools.find((each) => each.function === call.name);
    if (!tool) {
      call.state = "failed";
      call.result = texts.chat.noSuchTool(call.name);
    } else if (!tool.asks) await run(made, call);
  }
  redraw(made.turn);
  await settled(made);
}

async function run(made: Made, call: Call): Promise<void> {
  call.state = "running";
  touch(made.turn);
  try {
    const tools = await toolsOf(made.thread.conversation.settings.servers);
    const tool = tools.find((each) => each.function === call.name);
    if (!tool) throw new Error(texts.chat.noSuchTool(call.name));
    const given = JSON.parse(call.arguments || "{}") as unknown;
    const result = await json<{ text: string; is_error: boolean }>(`api/mcp/${encodeURIComponent(tool.server)}/call`, { body: { tool: tool.name, arguments: given } });
    call.state = result.is_error ? "failed" : "done";
    call.result = result.text;
  } catch (error) {
    call.state = "failed";
    call.result = error instanceof Error ? error.message : String(error);
  }
}

async function settled(made: Made): Promise<void> {
  const { answer, thread, turn } = made;
  save(thread, [turn], false);
  const { calls } = answer.rounds.at(-1)!;
  if (answer.state !== "asking" || calls.some((call) => call.state === "asking" || call.state === "running")) return;
  if (answer.rounds.length >= MAX_ROUNDS) {
    answer.error = texts.chat.tooManyRounds(MAX_ROUNDS);
    end(made, "failed");
    return;
  }
  answer.rounds.push(newRound());
  await proceed(made);
}

function end({ thread, turn, answer }: Made, state: Answer["state"]): void {
  answer.state = state;
  if (state !== "reconnecting") answer.stream = undefined;
  if (!turn.answers.some(isRunning)) delete turn.live;
  redraw(turn);
  structure.value += 1;
  save(thread, [turn]);
}

/** Show a turn again with the next picture, however much comes until then; later where drawing takes
 * so long that the page would not keep up. */
function redraw(turn: AssistantTurn): void {
  toDraw.add(turn);
  if (drawing) return;
  drawing = true;
  setTimeout(() => requestAnimationFrame(draw), Math.max(0, lastDrawn + Math.max(DRAW_EVERY_MS, IDLE_SHARE * drawMs) - performance.now()));
}

function draw(): void {
  const begun = performance.now();
  drawing = false;
  for (const each of toDraw) touch(each);
  toDraw.clear();
  if (begun - lastCounted > COUNT_EVERY_MS) {
    lastCounted = begun;
    counts.value += 1;
  }
  // After the elements are made and laid out.
  setTimeout(() => {
    lastDrawn = performance.now();
    drawMs = lastDrawn - begun;
  });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done, failed) => {
    const timer = setTimeout(done, ms);
    const wake = () => {
      clearTimeout(timer);
      done();
    };
    addEventListener("online", wake, { once: true });
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      failed(new DOMException("", "AbortError"));
    });
  });
}
