// The library of the graphs, as a chunk of its own.
export { default } from "uplot";
