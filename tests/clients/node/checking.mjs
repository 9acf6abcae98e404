// Runs the checks of one client against the daemon whose base URL is the first argument, and
// prints a line for each. A check is a function whose name says what it proves.
import assert from "node:assert/strict";

export { assert };
export const MODEL = "ember";
// ember generates text only; the daemon of the tests has an echo model that embeds.
export const EMBEDDER = "echo";
// An echo model that reasons where it is asked THOUGHT.
export const THINKER = "thinker";
export const THOUGHT = "<think>\nlet me see\n</think>\n\nyes";
export const UNKNOWN = "no-such-model";
export const CAPITAL = "What is the capital of France?";
// The echo model repeats it for 8 seconds.
export const ENDLESS = `<|slow|>${"on and on ".repeat(40)}`;
export const TOLD = "Paris is in France.";
export const WEATHER = "What is the weather in Paris?";
// What the weather tool answers.
export const REPORT = '{"temperature": 21, "condition": "sunny"}';

export const CITY = {
  type: "object",
  properties: { city: { type: "string" }, country: { type: "string" } },
  required: ["city", "country"],
  additionalProperties: false,
};
export const WEATHER_TOOL = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
    },
  },
};

export const user = (content) => [{ role: "user", content }];

export async function run(...checks) {
  const url = process.argv[2].replace(/\/$/, "");
  for (const check of checks) {
    const title = check.name.replaceAll("_", " ");
    try {
      await check(url);
      console.log(`ok     ${title}`);
    } catch (error) {
      console.error(error);
      console.log(`FAILED ${title}`);
      process.exitCode = 1;
    }
  }
}
