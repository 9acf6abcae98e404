import { texts } from "../../texts.en.ts";

export default function Models() {
  return (
    <section class="view" data-testid="view-models">
      <h1>{texts.models.title}</h1>
    </section>
  );
}
