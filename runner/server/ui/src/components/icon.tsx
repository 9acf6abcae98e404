// Line icons on a grid of 24, drawn for this page.
const PATHS = {
  activity: "M3 12h4l3-8 4 16 3-8h4",
  attach: "M20 11.5l-8.2 8.2a5 5 0 0 1-7-7l8.6-8.6a3.3 3.3 0 0 1 4.7 4.7L9.6 17.3a1.7 1.7 0 0 1-2.4-2.4l7.7-7.7",
  branch: "M7 4v16M7 14c8 0 10-3 10-8M14.5 8.5L17 6l2.5 2.5",
  chat: "M4 5h16v11H10l-5 4v-4H4z",
  check: "M5 12.5l4.5 4.5L19 7.5",
  chevronDown: "M6 9l6 6 6-6",
  chevronLeft: "M15 6l-6 6 6 6",
  chevronRight: "M9 6l6 6-6 6",
  close: "M6 6l12 12M18 6L6 18",
  columns: "M4 5h16v14H4zM12 5v14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  info: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v5M12 8v.01",
  menu: "M4 7h16M4 12h16M4 17h16",
  models: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  more: "M6 12v.01M12 12v.01M18 12v.01",
  plus: "M12 5v14M5 12h14",
  refresh: "M19 8a8 8 0 1 0 1 6M20 4v5h-5",
  search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12zM15.5 15.5L20 20",
  send: "M12 19V5M6 11l6-6 6 6",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  sliders: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  stop: "M7 7h10v10H7z",
  tool: "M14.5 6a4 4 0 0 0-4.9 5.1L4 16.7 7.3 20l5.6-5.6A4 4 0 0 0 18 9.5l-2.5 2.5-3-.5-.5-3z",
  trash: "M5 7h14M10 4h4M7 7l1 13h8l1-13M10 11v5M14 11v5",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
  warning: "M12 4l9 16H3zM12 10v5M12 17.5v.01",
};

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
