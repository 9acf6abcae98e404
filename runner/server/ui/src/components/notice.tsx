// What a view shows in place of what it could not get.
import type { ApiError } from "../api.ts";
import { texts } from "../texts.en.ts";
import { Button } from "./button.tsx";

export function Notice({ error, onRetry }: { error: ApiError; onRetry?: () => void }) {
  return (
    <div class="notice" role="alert" data-testid="notice">
      <p>{error.message}</p>
      {onRetry && error.status !== 403 && <Button onClick={onRetry}>{texts.common.retry}</Button>}
    </div>
  );
}
