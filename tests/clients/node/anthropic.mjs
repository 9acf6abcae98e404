// @anthropic-ai/sdk (npm) against a daemon.
import Anthropic from "@anthropic-ai/sdk";
import {
  assert, CAPITAL, EMBEDDER, ENDLESS, MODEL, REPORT, run, THINKER, THOUGHT, UNKNOWN, user,
  WEATHER, WEATHER_TOOL,
} from "./checking.mjs";

const client = (baseURL) => new Anthropic({ baseURL, apiKey: "none", maxRetries: 0 });
const GREEDY = { model: MODEL, temperature: 0, max_tokens: 200 };
const { name, description, parameters } = WEATHER_TOOL.function;
const TOOL = { name, description, input_schema: parameters };

async function a_message_with_usage(url) {
  const answer = await client(url).messages.create({ ...GREEDY, messages: user(CAPITAL) });
  assert.match(answer.content[0].text, /Paris/);
  assert.equal(answer.stop_reason, "end_turn");
  assert.ok(answer.usage.output_tokens > 0);
}

async function a_streamed_message(url) {
  const stream = client(url).messages.stream({ ...GREEDY, messages: user(CAPITAL) });
  let parts = 0;
  stream.on("text", () => (parts += 1));
  assert.match(await stream.finalText(), /Paris/);
  assert.ok(parts > 3);
  assert.ok((await stream.finalMessage()).usage.output_tokens > 0);
}

async function a_stream_that_is_aborted(url) {
  const stream = client(url).messages.stream({
    ...GREEDY, model: EMBEDDER, messages: user(ENDLESS),
  });
  stream.on("text", () => stream.abort());
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  await a_message_with_usage(url);
}

async function a_tool_is_called_and_its_result_answered(url) {
  const asked = await client(url).messages.create({
    ...GREEDY, messages: user(WEATHER), tools: [TOOL],
  });
  assert.equal(asked.stop_reason, "tool_use");
  const call = asked.content.find((block) => block.type === "tool_use");
  assert.equal(call.name, "get_weather");
  assert.deepEqual(call.input, { city: "Paris" });
  const result = { type: "tool_result", tool_use_id: call.id, content: REPORT };
  const answer = await client(url).messages.create({
    ...GREEDY,
    messages: [
      ...user(WEATHER), { role: "assistant", content: asked.content }, ...user([result]),
    ],
    tools: [TOOL],
  });
  assert.match(answer.content[0].text, /21/);
}

async function tokens_are_counted(url) {
  const counted = await client(url).messages.countTokens({ model: MODEL, messages: user(CAPITAL) });
  const answer = await client(url).messages.create({ ...GREEDY, messages: user(CAPITAL) });
  const { input_tokens, cache_read_input_tokens } = answer.usage;
  assert.equal(counted.input_tokens, input_tokens + (cache_read_input_tokens ?? 0));
}

async function reasoning_apart_from_the_answer(url) {
  const given = {
    model: THINKER,
    max_tokens: 2000,
    messages: user(THOUGHT),
    thinking: { type: "enabled", budget_tokens: 1024 },
  };
  const answer = await client(url).messages.create(given);
  assert.deepEqual(answer.content.map((block) => block.type), ["thinking", "text"]);
  const streamed = await client(url).messages.stream(given).finalMessage();
  assert.match(streamed.content[0].thinking, /let me see/);
  assert.equal(streamed.content[1].text, "yes");
}

async function an_unknown_model_is_not_found(url) {
  const asked = client(url).messages.create({ ...GREEDY, model: UNKNOWN, messages: user("hi") });
  await assert.rejects(asked, Anthropic.NotFoundError);
}

await run(
  a_message_with_usage,
  a_streamed_message,
  a_stream_that_is_aborted,
  a_tool_is_called_and_its_result_answered,
  tokens_are_counted,
  reasoning_apart_from_the_answer,
  an_unknown_model_is_not_found,
);
