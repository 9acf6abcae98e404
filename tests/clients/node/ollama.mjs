// ollama (npm) against a daemon.
import { Ollama } from "ollama";
import {
  assert, CAPITAL, CITY, EMBEDDER, ENDLESS, MODEL, REPORT, run, THINKER, THOUGHT, TOLD, UNKNOWN,
  user, WEATHER, WEATHER_TOOL,
} from "./checking.mjs";

const client = (host) => new Ollama({ host });
const GREEDY = { model: MODEL, options: { temperature: 0 } };

async function a_chat_with_its_counts(url) {
  const answer = await client(url).chat({ ...GREEDY, messages: user(CAPITAL) });
  assert.match(answer.message.content, /Paris/);
  assert.equal(answer.done_reason, "stop");
  assert.ok(answer.eval_count > 0 && answer.total_duration >= answer.eval_duration);
}

async function a_streamed_chat(url) {
  const parts = [];
  const stream = await client(url).chat({ ...GREEDY, messages: user(CAPITAL), stream: true });
  for await (const part of stream) parts.push(part);
  assert.match(parts.map((part) => part.message.content).join(""), /Paris/);
  assert.ok(parts.length > 3);
  assert.deepEqual(parts.filter((part) => part.done), parts.slice(-1));
}

async function a_prompt_whole_and_streamed(url) {
  const whole = await client(url).generate({ ...GREEDY, prompt: CAPITAL });
  assert.match(whole.response, /Paris/);
  const stream = await client(url).generate({ ...GREEDY, prompt: CAPITAL, stream: true });
  let text = "";
  for await (const part of stream) text += part.response;
  assert.equal(text, whole.response);
}

async function a_stream_that_is_aborted(url) {
  const stream = await client(url).chat({
    model: EMBEDDER, messages: user(ENDLESS), stream: true,
  });
  const reading = (async () => {
    for await (const part of stream) if (part.message.content) stream.abort();
  })();
  await assert.rejects(reading, { name: "AbortError" });
  await a_chat_with_its_counts(url);
}

async function a_tool_is_called_and_its_result_answered(url) {
  const { message } = await client(url).chat({
    ...GREEDY, messages: user(WEATHER), tools: [WEATHER_TOOL],
  });
  const [call] = message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(call.function.arguments, { city: "Paris" });
  const answer = await client(url).chat({
    ...GREEDY,
    messages: [
      ...user(WEATHER), message, { role: "tool", tool_name: "get_weather", content: REPORT },
    ],
    tools: [WEATHER_TOOL],
  });
  assert.match(answer.message.content, /21/);
}

async function an_answer_in_a_format(url) {
  for (const format of [CITY, "json"]) {
    const answer = await client(url).chat({ ...GREEDY, messages: user(TOLD), format });
    assert.equal(typeof JSON.parse(answer.message.content), "object");
  }
}

async function embeddings_of_texts(url) {
  const { embeddings } = await client(url).embed({ model: EMBEDDER, input: ["a", "b"] });
  assert.equal(embeddings.length, 2);
  assert.notDeepEqual(embeddings[0], embeddings[1]);
}

async function models_are_listed_shown_and_seen_in_memory(url) {
  const named = (answer) => answer.models.map((model) => model.name);
  assert.ok(named(await client(url).list()).includes(`${MODEL}:latest`));
  assert.ok((await client(url).show({ model: MODEL })).capabilities.includes("tools"));
  assert.ok(named(await client(url).ps()).includes(`${MODEL}:latest`));
  assert.ok((await client(url).version()).version);
}

async function reasoning_apart_from_the_answer(url) {
  const given = { model: THINKER, messages: user(THOUGHT), think: true };
  const { message } = await client(url).chat(given);
  assert.equal(message.content, "yes");
  assert.match(message.thinking, /let me see/);
}

async function an_unknown_model_is_not_found(url) {
  const asked = client(url).chat({ model: UNKNOWN, messages: user("hi") });
  await assert.rejects(asked, { name: "ResponseError", status_code: 404 });
}

await run(
  a_chat_with_its_counts,
  a_streamed_chat,
  a_prompt_whole_and_streamed,
  a_stream_that_is_aborted,
  a_tool_is_called_and_its_result_answered,
  an_answer_in_a_format,
  embeddings_of_texts,
  models_are_listed_shown_and_seen_in_memory,
  reasoning_apart_from_the_answer,
  an_unknown_model_is_not_found,
);
