import { texts } from "../../texts.en.ts";

export default function Activity() {
  return (
    <section class="view" data-testid="view-activity">
      <h1>{texts.activity.title}</h1>
    </section>
  );
}
