/** Typed tag functions: `div({ class: "x" }, "text")` with the properties that Preact knows of a `div`. */
import type { ComponentChildren, JSX, VNode } from "../vendor/preact/preact.js";

export type Content = ComponentChildren;
export type Tag<P> = (properties: P | null, ...content: Content[]) => VNode;
export type Tags = { [K in keyof JSX.IntrinsicElements]: Tag<JSX.IntrinsicElements[K]> };
/** A component's tag; `key` tells siblings apart. */
export type ComponentTag<P> = (properties: P & { key?: string | number }, ...content: Content[]) => VNode;
