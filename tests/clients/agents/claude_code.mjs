// Claude Code against a daemon, as a user sets it up: its base URL, its model, any key.
import { assert, run, UNKNOWN } from "../node/checking.mjs";
import { AGENT, called, events, installed } from "./running.mjs";

const PROGRAM = installed("@anthropic-ai", "claude-code-linux-x64", "claude");
const QUIET = {
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  DISABLE_AUTOUPDATER: "1",
  DISABLE_ERROR_REPORTING: "1",
  DISABLE_TELEMETRY: "1",
};

const ask = (url, prompt, ...more) => events(
  PROGRAM,
  ["--print", prompt, "--output-format", "stream-json", "--verbose", ...more],
  {
    ...QUIET,
    ANTHROPIC_API_KEY: "none",
    ANTHROPIC_BASE_URL: url,
    ANTHROPIC_MODEL: AGENT,
    ANTHROPIC_SMALL_FAST_MODEL: AGENT,
  },
);
const parts = (told) => told.flatMap(({ message }) =>
  (Array.isArray(message?.content) ? message.content : []));

async function a_prompt_is_answered_with_usage(url) {
  const result = (await ask(url, "Say hello.")).at(-1);
  assert.equal(result.is_error, false, JSON.stringify(result));
  assert.match(result.result, /Say hello\./);
  assert.ok(result.usage.input_tokens > 1000 && result.usage.output_tokens > 0);
}

async function an_answer_is_streamed(url) {
  const told = await ask(url, "Say hello.", "--include-partial-messages");
  const kinds = told.filter(({ type }) => type === "stream_event").map(({ event }) => event.type);
  assert.equal(kinds[0], "message_start");
  assert.equal(kinds.at(-1), "message_stop");
  assert.ok(kinds.filter((kind) => kind === "content_block_delta").length > 3);
}

async function a_tool_is_run_and_its_result_answered(url) {
  const call = called("Bash", { command: "echo made by a tool", description: "says it" });
  const told = parts(await ask(url, call, "--allowedTools", "Bash"));
  const use = told.find(({ type }) => type === "tool_use");
  assert.equal(use.input.command, "echo made by a tool");
  const result = told.find(({ type }) => type === "tool_result");
  assert.equal(result.tool_use_id, use.id);
  assert.match(JSON.stringify(result.content), /made by a tool/);
}

async function an_unknown_model_is_not_found(url) {
  const result = (await ask(url, "hi", "--model", UNKNOWN)).at(-1);
  assert.equal(result.is_error, true);
  assert.equal(result.api_error_status, 404, JSON.stringify(result));
}

await run(
  a_prompt_is_answered_with_usage,
  an_answer_is_streamed,
  a_tool_is_run_and_its_result_answered,
  an_unknown_model_is_not_found,
);
