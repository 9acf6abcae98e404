// @langchain/openai (npm) against a daemon.
import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";
import {
  assert, CAPITAL, EMBEDDER, ENDLESS, MODEL, REPORT, run, TOLD, UNKNOWN, WEATHER,
} from "./checking.mjs";

const chat = (url, more = {}) => new ChatOpenAI({
  model: MODEL, temperature: 0, apiKey: "none", maxRetries: 0,
  configuration: { baseURL: `${url}/v1` }, ...more,
});
const weather = tool(async () => REPORT, {
  name: "get_weather",
  description: "The weather of a city.",
  schema: z.object({ city: z.string() }),
});
const City = z.object({ city: z.string(), country: z.string() });

async function a_chat_with_usage(url) {
  const answer = await chat(url).invoke(CAPITAL);
  assert.match(answer.text, /Paris/);
  assert.ok(answer.usage_metadata.output_tokens > 0);
}

async function a_stream_with_usage(url) {
  let whole;
  let pieces = 0;
  for await (const piece of await chat(url).stream(CAPITAL)) {
    whole = whole ? whole.concat(piece) : piece;
    pieces += 1;
  }
  assert.match(whole.text, /Paris/);
  assert.ok(pieces > 3);
  assert.ok(whole.usage_metadata.output_tokens > 0);
}

async function a_stream_that_is_aborted(url) {
  const control = new AbortController();
  const stream = await chat(url, { model: EMBEDDER }).stream(ENDLESS, { signal: control.signal });
  await assert.rejects(async () => {
    for await (const piece of stream) if (piece.text) control.abort();
  });
  await a_chat_with_usage(url);
}

async function a_tool_is_called_and_its_result_answered(url) {
  const bound = chat(url).bindTools([weather]);
  const asked = await bound.invoke(WEATHER);
  const [call] = asked.tool_calls;
  assert.deepEqual([call.name, call.args], ["get_weather", { city: "Paris" }]);
  const answer = await bound.invoke([new HumanMessage(WEATHER), asked, await weather.invoke(call)]);
  assert.match(answer.text, /21/);
}

async function a_tool_call_is_streamed(url) {
  let whole;
  for await (const piece of await chat(url).bindTools([weather]).stream(WEATHER)) {
    whole = whole ? whole.concat(piece) : piece;
  }
  const [call] = whole.tool_calls;
  assert.deepEqual([call.name, call.args], ["get_weather", { city: "Paris" }]);
}

async function structured_output_by_each_method(url) {
  for (const method of ["jsonSchema", "functionCalling"]) {
    const found = await chat(url).withStructuredOutput(City, { method, name: "city" }).invoke(TOLD);
    assert.deepEqual(Object.keys(found).sort(), ["city", "country"]);
  }
}

async function the_responses_api(url) {
  const answer = await chat(url, { useResponsesApi: true }).invoke(CAPITAL);
  assert.match(answer.text, /Paris/);
}

async function embeddings_of_texts(url) {
  const embedder = new OpenAIEmbeddings({
    model: EMBEDDER, apiKey: "none", configuration: { baseURL: `${url}/v1` },
  });
  const [one, two] = await embedder.embedDocuments(["a", "b"]);
  assert.notDeepEqual(one, two);
}

async function an_unknown_model_is_not_found(url) {
  const asked = chat(url, { model: UNKNOWN }).invoke("hi");
  await assert.rejects(asked, (error) => error.status === 404 && /no-such-model/.test(error.message));
}

await run(
  a_chat_with_usage,
  a_stream_with_usage,
  a_stream_that_is_aborted,
  a_tool_is_called_and_its_result_answered,
  a_tool_call_is_streamed,
  structured_output_by_each_method,
  the_responses_api,
  embeddings_of_texts,
  an_unknown_model_is_not_found,
);
