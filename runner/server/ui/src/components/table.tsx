// A table with a caption; it scrolls sideways by itself where the page is narrow.
import type { ComponentChildren } from "preact";

export interface Column {
  title: string;
  /** Figures are set flush right. */
  number?: boolean;
}

export function Table({ caption, columns, children, testid }: { caption: string; columns: Column[]; children: ComponentChildren; testid?: string }) {
  return (
    <div class="table" tabindex={0} role="region" aria-label={caption}>
      <table data-testid={testid}>
        <caption class="unseen">{caption}</caption>
        <thead>
          <tr>
            {columns.map(({ title, number }) => (
              <th key={title} scope="col" class={number ? "number" : undefined}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
