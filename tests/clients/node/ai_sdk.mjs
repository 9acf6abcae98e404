// The AI SDK against a daemon, by three of its providers: OpenAI-compatible, OpenAI (chat and
// responses) and Ollama.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  APICallError, embedMany, generateText, Output, stepCountIs, streamText, tool,
} from "ai";
import { createOllama } from "ollama-ai-provider-v2";
import { z } from "zod";
import {
  assert, CAPITAL, EMBEDDER, ENDLESS, MODEL, REPORT, run, THINKER, THOUGHT, TOLD, UNKNOWN, user,
  WEATHER,
} from "./checking.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const City = z.object({ city: z.string(), country: z.string() });

const REASONING = {
  ollama: { think: true },
  openai: { reasoningSummary: "auto", forceReasoning: true },
};

const compatible = (url) => createOpenAICompatible({
  name: "hearth", baseURL: `${url}/v1`, includeUsage: true, supportsStructuredOutputs: true,
});
const openai = (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const ollama = (url) => createOllama({ baseURL: `${url}/api` });

const models = (url, name = MODEL) => [
  compatible(url)(name), openai(url).chat(name), openai(url).responses(name), ollama(url)(name),
];
const given = (model) => ({ model, temperature: 0, maxRetries: 0 });

async function a_text_by_each_provider(url) {
  for (const model of models(url)) {
    const answer = await generateText({ ...given(model), prompt: CAPITAL });
    assert.match(answer.text, /Paris/, model.provider);
    assert.equal(answer.finishReason, "stop", model.provider);
    assert.ok(answer.usage.outputTokens > 0, model.provider);
  }
}

async function a_streamed_text_by_each_provider(url) {
  for (const model of models(url)) {
    const answer = streamText({ ...given(model), messages: user(CAPITAL) });
    const parts = [];
    for await (const part of answer.textStream) parts.push(part);
    assert.match(parts.join(""), /Paris/, model.provider);
    assert.ok(parts.length > 3, model.provider);
    assert.equal(await answer.finishReason, "stop", model.provider);
    assert.ok((await answer.usage).outputTokens > 0, model.provider);
  }
}

async function a_stream_that_is_aborted(url) {
  for (const model of models(url, EMBEDDER)) {
    const stop = new AbortController();
    const answer = streamText({ ...given(model), prompt: ENDLESS, abortSignal: stop.signal });
    const kinds = [];
    for await (const part of answer.fullStream) {
      kinds.push(part.type);
      if (part.type === "text-delta") stop.abort();
    }
    assert.equal(kinds.at(-1), "abort", model.provider);
  }
  await a_text_by_each_provider(url);
}

const weather = (asked) => tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    asked.push(city);
    return JSON.parse(REPORT);
  },
});

async function a_tool_is_called_and_its_result_answered_by_each_provider(url) {
  for (const model of models(url)) {
    const asked = [];
    const request = {
      ...given(model),
      prompt: WEATHER,
      tools: { get_weather: weather(asked) },
      stopWhen: stepCountIs(2),
    };
    assert.match((await generateText(request)).text, /21/, model.provider);
    assert.match(await streamText(request).text, /21/, model.provider);
    assert.deepEqual(asked, ["Paris", "Paris"], model.provider);
  }
}

async function a_required_tool_is_called(url) {
  const [compatibly, chat, responses] = models(url);
  for (const model of [compatibly, chat, responses]) {
    const answer = await generateText({
      ...given(model),
      prompt: "hello",
      tools: { get_weather: weather([]) },
      toolChoice: "required",
    });
    assert.deepEqual(answer.toolCalls.map((call) => call.toolName), ["get_weather"]);
  }
}

async function an_object_by_each_provider(url) {
  for (const model of models(url)) {
    const request = { ...given(model), prompt: TOLD, output: Output.object({ schema: City }) };
    City.parse((await generateText(request)).output);
    const streamed = streamText(request);
    const parts = [];
    for await (const part of streamed.partialOutputStream) parts.push(part);
    City.parse(await streamed.output);
    assert.ok(parts.length > 1, model.provider);
  }
}

async function embeddings_of_texts_by_each_provider(url) {
  const embedders = [
    compatible(url).embeddingModel(EMBEDDER),
    openai(url).embedding(EMBEDDER),
    ollama(url).embedding(EMBEDDER),
  ];
  for (const model of embedders) {
    const { embeddings } = await embedMany({ model, values: ["a", "b"], maxRetries: 0 });
    assert.equal(embeddings.length, 2, model.provider);
    assert.notDeepEqual(embeddings[0], embeddings[1], model.provider);
  }
}

async function reasoning_apart_from_the_answer_by_each_provider(url) {
  for (const model of models(url, THINKER)) {
    const request = { ...given(model), prompt: THOUGHT, providerOptions: REASONING };
    const answer = await generateText(request);
    assert.equal(answer.text, "yes", model.provider);
    const streamed = streamText(request);
    assert.equal(await streamed.text, "yes", model.provider);
    if (model.provider === "openai.chat") continue; // OpenAI's own chat shows no reasoning
    assert.match(answer.reasoningText, /let me see/, model.provider);
    assert.match(await streamed.reasoningText, /let me see/, model.provider);
  }
}

async function an_unknown_model_is_not_found(url) {
  for (const model of models(url, UNKNOWN)) {
    await assert.rejects(generateText({ ...given(model), prompt: "hi" }), (error) => {
      assert.ok(APICallError.isInstance(error), model.provider);
      assert.equal(error.statusCode, 404, model.provider);
      // The provider for Ollama shows Ollama's messages in the body only.
      assert.match(`${error.message} ${error.responseBody}`, /no-such-model/, model.provider);
      return true;
    });
  }
}

await run(
  a_text_by_each_provider,
  a_streamed_text_by_each_provider,
  a_stream_that_is_aborted,
  a_tool_is_called_and_its_result_answered_by_each_provider,
  a_required_tool_is_called,
  an_object_by_each_provider,
  embeddings_of_texts_by_each_provider,
  reasoning_apart_from_the_answer_by_each_provider,
  an_unknown_model_is_not_found,
);
