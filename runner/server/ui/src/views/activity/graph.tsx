// A graph that moves: the library comes when the first one is shown.
import { useEffect, useRef } from "preact/hooks";
import { theme } from "../../theme.ts";
import { texts } from "../../texts.en.ts";

export interface Line {
  label: string;
  values: (number | null)[];
}

export interface GraphProps {
  title: string;
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  testid: string;
  /** The top of the axis, where it does not follow the values. */
  top?: number;
}

/** Lines are told apart by their dashes, too; the sheet has their colours. */
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
const WINDOW_S = 120;
const KINDS = DASHES.length;
const dark = matchMedia("(prefers-color-scheme: dark)");

/** The colour of a line as the theme has it now. */
function paint(place: HTMLElement, index: number): string {
  const sample = document.createElement("i");
  sample.className = `line-${index % KINDS}`;
  place.append(sample);
  const found = getComputedStyle(sample).backgroundColor;
  sample.remove();
  return found;
}

export function Graph({ title, times, lines, format, testid, top }: GraphProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<{ setData: (data: (number | null)[][]) => void } | null>(null);
  const end = times.at(-1) ?? 0;
  const data = [times.map((each) => each - end), ...lines.map((line) => line.values)];
  const latest = useRef(data);
  latest.current = data;
  const names = lines.map((line) => line.label).join("\n");
  useEffect(() => {
    let ended = false;
    let clear = () => {};
    import("./plot.ts").then(({ default: UPlot }) => {
      const here = place.current;
      if (ended || !here) return;
      const styled = getComputedStyle(here);
      const ink = styled.getPropertyValue("color");
      const grid = { stroke: styled.getPropertyValue("border-top-color"), width: 1 };
      const axis = { stroke: ink, grid, ticks: { show: false }, font: `11px ${styled.fontFamily}` };
      const made = new UPlot(
        {
          width: here.clientWidth,
          height: here.clientHeight,
          legend: { show: false },
          cursor: { show: false },
          scales: { x: { time: false, range: [-WINDOW_S, 0] }, y: { range: (_, _min, max) => [0, top ?? Math.max(1, max * 1.1)] } },
          axes: [{ ...axis, size: 24, space: 50, values: (_, ticks) => ticks.map((tick) => (tick ? texts.activity.ago(-tick) : texts.activity.nowMark)) }, { ...axis, size: 58, space: 28, values: (_, ticks) => ticks.map(format) }],
          series: [{}, ...lines.map((line, index) => ({ label: line.label, stroke: paint(here, index), dash: DASHES[index % DASHES.length], width: 2, points: { show: false } }))],
        },
        latest.current as never,
        here,
      );
      plot.current = made as never;
      const watcher = new ResizeObserver(() => made.setSize({ width: here.clientWidth, height: here.clientHeight }));
      watcher.observe(here);
      clear = () => {
        watcher.disconnect();
        made.destroy();
        plot.current = null;
      };
    });
    return () => {
      ended = true;
      clear();
    };
  }, [names, theme.value, dark.matches]);
  useEffect(() => plot.current?.setData(data));
  const now = lines.map(({ label, values }) => `${label} ${format(values.at(-1) ?? 0)}`);
  return (
    <figure class="graph" data-testid={testid}>
      <figcaption>
        <strong>{title}</strong>
      </figcaption>
      <div class="plot" ref={place} role="img" aria-label={texts.activity.now(title, now.join(", "))} />
      <ul class="legend" aria-hidden="true">
        {lines.map(({ label, values }, index) => (
          <li key={label}>
            <i class={`line-${index % KINDS}`} />
            {label} {format(values.at(-1) ?? 0)}
          </li>
        ))}
      </ul>
    </figure>
  );
}
