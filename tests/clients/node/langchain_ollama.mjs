// @langchain/ollama (npm) against a daemon.
import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOllama, OllamaEmbeddings } from "@langchain/ollama";
import { z } from "zod";
import {
  assert, CAPITAL, EMBEDDER, ENDLESS, MODEL, REPORT, run, TOLD, UNKNOWN, WEATHER,
} from "./checking.mjs";

const chat = (url, more = {}) => new ChatOllama({
  model: MODEL, temperature: 0, baseUrl: url, maxRetries: 0, ...more,
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
  const pieces = [];
  for await (const piece of await chat(url).stream(CAPITAL)) pieces.push(piece);
  assert.match(pieces.map((piece) => piece.text).join(""), /Paris/);
  assert.ok(pieces.length > 3);
  assert.ok(pieces.at(-1).usage_metadata.output_tokens > 0);
}

async function a_stream_that_is_left_early(url) {
  for await (const piece of await chat(url, { model: EMBEDDER }).stream(ENDLESS)) {
    if (piece.text) break;
  }
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

async function structured_output(url) {
  const found = await chat(url).withStructuredOutput(City, { name: "city" }).invoke(TOLD);
  assert.deepEqual(Object.keys(found).sort(), ["city", "country"]);
}

async function embeddings_of_texts(url) {
  const embedder = new OllamaEmbeddings({ model: EMBEDDER, baseUrl: url });
  const [one, two] = await embedder.embedDocuments(["a", "b"]);
  assert.notDeepEqual(one, two);
}

async function an_unknown_model_is_not_found(url) {
  const asked = chat(url, { model: UNKNOWN }).invoke("hi");
  await assert.rejects(asked, /not found/);
}

await run(
  a_chat_with_usage,
  a_stream_with_usage,
  a_stream_that_is_left_early,
  a_tool_is_called_and_its_result_answered,
  structured_output,
  embeddings_of_texts,
  an_unknown_model_is_not_found,
);
