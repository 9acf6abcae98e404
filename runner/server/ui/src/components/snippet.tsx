// Text to be copied: commands, programs, keys.
import { useSignal } from "@preact/signals";
import { copyText } from "../clipboard.ts";
import { texts } from "../texts.en.ts";
import { Button } from "./button.tsx";
import { toast } from "./toast.tsx";

export function Snippet({ label, text, testid }: { label: string; text: string; testid?: string }) {
  const copied = useSignal(false);
  const copy = async () => {
    try {
      await copyText(text);
      copied.value = true;
      setTimeout(() => (copied.value = false), 2000);
    } catch {
      toast(texts.errors.clipboard, "error");
    }
  };
  return (
    <div class="snippet">
      <pre tabindex={0} role="region" aria-label={label} data-testid={testid}>
        <code>{text}</code>
      </pre>
      <Button icon={copied.value ? "check" : "copy"} onClick={copy} aria-label={`${texts.common.copy}: ${label}`}>
        {copied.value ? texts.common.copied : texts.common.copy}
      </Button>
    </div>
  );
}
