// What the daemon is asked: the shown turns as messages, with the conversation's settings.
import { type Answer, type ChatSettings, type Turn } from "./model.ts";

export interface OfferedTool {
  server: string;
  name: string;
  function: string;
  description: string;
  parameters: unknown;
  asks: boolean;
}

type Message = Record<string, unknown>;

/** The messages before an answer. lane: whose answers the model has seen, where two were asked. */
export function messagesOf(settings: ChatSettings, before: Turn[], lane: number): Message[] {
  const messages: Message[] = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  for (const turn of before) {
    if (turn.role === "user") messages.push({ role: "user", content: contentOf(turn.text, turn.images) });
    else messages.push(...answered(turn.answers[lane] ?? turn.answers[0]));
  }
  return messages;
}

function contentOf(text: string, images: string[]): unknown {
  if (!images.length) return text;
  const parts: Message[] = images.map((url) => ({ type: "image_url", image_url: { url } }));
  return text ? [...parts, { type: "text", text }] : parts;
}

/** An answer as messages, with the calls that it made and what they gave. */
export function answered(answer: Answer | undefined): Message[] {
  const messages: Message[] = [];
  for (const { text, calls } of answer?.rounds ?? []) {
    if (!text && !calls.length) continue;
    const made = calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments || "{}" } }));
    messages.push({ role: "assistant", content: text, ...(made.length ? { tool_calls: made } : {}) });
    for (const call of calls) messages.push({ role: "tool", tool_call_id: call.id, content: call.result ?? "" });
  }
  return messages;
}

/** The body of the request. */
export function bodyOf(settings: ChatSettings, model: string, messages: Message[], tools: OfferedTool[]): Message {
  const { stop, ...parameters } = settings.parameters;
  const offered = tools.map((tool) => ({ type: "function", function: { name: tool.function, description: tool.description, parameters: tool.parameters } }));
  return {
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    ...parameters,
    ...(stop?.length ? { stop } : {}),
    ...(settings.reasoning ? { reasoning_effort: settings.reasoning } : {}),
    ...(settings.schema.trim() ? { response_format: { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(settings.schema) as unknown } } } : {}),
    ...(offered.length ? { tools: offered } : {}),
  };
}
