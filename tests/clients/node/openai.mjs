// openai (npm) against a daemon.
import { setTimeout } from "node:timers/promises";
import OpenAI, { toFile } from "openai";
import {
  assert, CAPITAL, CITY, EMBEDDER, ENDLESS, MODEL, REPORT, run, THINKER, THOUGHT, TOLD, UNKNOWN,
  user, WEATHER, WEATHER_TOOL,
} from "./checking.mjs";

const client = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const GREEDY = { model: MODEL, temperature: 0 };
const FORMAT = {
  type: "json_schema",
  json_schema: { name: "city", strict: true, schema: CITY },
};

async function a_chat_with_usage(url) {
  const answer = await client(url).chat.completions.create({ ...GREEDY, messages: user(CAPITAL) });
  assert.match(answer.choices[0].message.content, /Paris/);
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.ok(answer.usage.completion_tokens > 0);
}

async function a_stream_with_usage(url) {
  const stream = await client(url).chat.completions.create({
    ...GREEDY, messages: user(CAPITAL), stream: true, stream_options: { include_usage: true },
  });
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  assert.match(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), /Paris/);
  assert.ok(chunks.length > 3);
  assert.ok(chunks.at(-1).usage.completion_tokens > 0);
}

async function the_stream_helper(url) {
  const stream = client(url).chat.completions.stream({ ...GREEDY, messages: user(CAPITAL) });
  assert.match(await stream.finalContent(), /Paris/);
}

async function a_stream_that_is_aborted(url) {
  const stream = await client(url).chat.completions.create({
    model: EMBEDDER, messages: user(ENDLESS), stream: true,
  });
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
  assert.ok(stream.controller.signal.aborted);
  await a_chat_with_usage(url);
}

async function a_tool_is_called_and_its_result_answered(url) {
  const asked = await client(url).chat.completions.create({
    ...GREEDY, messages: user(WEATHER), tools: [WEATHER_TOOL],
  });
  const { message } = asked.choices[0];
  const [call] = message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
  const answer = await client(url).chat.completions.create({
    ...GREEDY,
    messages: [
      ...user(WEATHER), message, { role: "tool", tool_call_id: call.id, content: REPORT },
    ],
    tools: [WEATHER_TOOL],
  });
  assert.match(answer.choices[0].message.content, /21/);
}

async function tools_run_by_the_library(url) {
  const asked = [];
  const runner = client(url).chat.completions.runTools({
    ...GREEDY,
    messages: user(WEATHER),
    tools: [{
      type: "function",
      function: {
        ...WEATHER_TOOL.function,
        parse: JSON.parse,
        function: ({ city }) => {
          asked.push(city);
          return REPORT;
        },
      },
    }],
    stream: true,
  });
  assert.match(await runner.finalContent(), /21/);
  assert.deepEqual(asked, ["Paris"]);
}

async function a_structured_answer(url) {
  const answer = await client(url).chat.completions.parse({
    ...GREEDY, messages: user(TOLD), response_format: FORMAT,
  });
  const found = JSON.parse(answer.choices[0].message.content);
  assert.deepEqual(Object.keys(found).sort(), ["city", "country"]);
}

async function the_responses_api(url) {
  const answer = await client(url).responses.create({ ...GREEDY, input: CAPITAL });
  assert.match(answer.output_text, /Paris/);
  const stream = client(url).responses.stream({ ...GREEDY, input: CAPITAL });
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  assert.equal(kinds[0], "response.created");
  assert.equal(kinds.at(-1), "response.completed");
  assert.match((await stream.finalResponse()).output_text, /Paris/);
}

async function completions(url) {
  const answer = await client(url).completions.create({
    ...GREEDY, prompt: "One, two,", max_tokens: 8,
  });
  assert.ok(answer.choices[0].text.length > 0);
}

async function embeddings_of_texts(url) {
  const found = await client(url).embeddings.create({ model: EMBEDDER, input: ["a", "b"] });
  const [one, two] = found.data.map((each) => each.embedding);
  assert.ok(one.length > 1 && one.every(Number.isFinite));
  assert.notDeepEqual(one, two);
}

async function models(url) {
  const names = [];
  for await (const model of client(url).models.list()) names.push(model.id);
  assert.ok(names.includes(MODEL));
  assert.equal((await client(url).models.retrieve(MODEL)).id, MODEL);
}

async function reasoning_apart_from_the_answer(url) {
  const given = { model: THINKER, messages: user(THOUGHT) };
  const { message } = (await client(url).chat.completions.create(given)).choices[0];
  assert.equal(message.content, "yes");
  assert.match(message.reasoning_content, /let me see/);
  const answer = await client(url).responses.create({ model: THINKER, input: THOUGHT });
  assert.equal(answer.output_text, "yes");
  assert.deepEqual(answer.output.map((item) => item.type), ["reasoning", "message"]);
}

async function a_batch_of_a_file(url) {
  const hearth = client(url);
  const lines = ["one", "two"].map((id) => JSON.stringify({
    custom_id: id,
    method: "POST",
    url: "/v1/chat/completions",
    body: { ...GREEDY, messages: user(CAPITAL) },
  }));
  const file = await toFile(Buffer.from(lines.join("\n")), "asked.jsonl");
  const input = await hearth.files.create({ file, purpose: "batch" });
  let batch = await hearth.batches.create({
    input_file_id: input.id, endpoint: "/v1/chat/completions", completion_window: "24h",
  });
  while (!["completed", "failed", "expired", "cancelled"].includes(batch.status)) {
    await setTimeout(50);
    batch = await hearth.batches.retrieve(batch.id);
  }
  assert.deepEqual(batch.request_counts, { total: 2, completed: 2, failed: 0 });
  const answers = await (await hearth.files.content(batch.output_file_id)).text();
  for (const line of answers.trim().split("\n")) {
    assert.match(JSON.parse(line).response.body.choices[0].message.content, /Paris/);
  }
  const listed = [];
  for await (const each of hearth.batches.list()) listed.push(each.id);
  assert.ok(listed.includes(batch.id));
  assert.equal((await hearth.files.delete(input.id)).deleted, true);
}

async function an_unknown_model_is_not_found(url) {
  const asked = client(url).chat.completions.create({ model: UNKNOWN, messages: user("hi") });
  await assert.rejects(asked, (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, "model_not_found");
    return true;
  });
}

await run(
  a_chat_with_usage,
  a_stream_with_usage,
  the_stream_helper,
  a_stream_that_is_aborted,
  a_tool_is_called_and_its_result_answered,
  tools_run_by_the_library,
  a_structured_answer,
  the_responses_api,
  completions,
  embeddings_of_texts,
  models,
  reasoning_apart_from_the_answer,
  a_batch_of_a_file,
  an_unknown_model_is_not_found,
);
