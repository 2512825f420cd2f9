/** Text of files with its lines numbered, and the difference of two texts. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { plural, visible } from "../lib/format.js";
import { component, tags } from "./tags.js";

/** @import { Line } from "../lib/diff.js" */

const { button, div, li, ol, p, span } = tags;

const LINE_LIMIT = 3000; // lines; more on demand
const CONTEXT_LINES = 3; // unchanged lines that are shown beside a change
const MAX_LINE_LENGTH = 2000; // characters of a line

export const SourceText = component((/** @type {{ text: string, label: string }} */ { text, label }) => {
    const lineLimit = useSignal(LINE_LIMIT);
    const lines = useMemo(() => {
        const rows = text.split("\n");
        if (rows.at(-1) === "") rows.pop();
        return rows;
    }, [text]);
    if (lines.length === 0) return p({ class: "muted" }, "This file is empty.");
    return div(
        { class: "source", tabIndex: 0, role: "region", "aria-label": visible(label, 200) },
        ol(
            null,
            lines.slice(0, lineLimit.value).map((line, at) => li({ key: at }, span(null, visibleLine(line)))),
        ),
        lines.length > lineLimit.value
            ? button(
                  {
                      type: "button",
                      onClick: () => {
                          lineLimit.value += LINE_LIMIT * 4;
                      },
                  },
                  `${plural(lines.length - lineLimit.value, "more line")}: show`,
              )
            : null,
    );
});

export const Difference = component((/** @type {{ lines: Line[], same: string }} */ { lines, same }) => {
    const all = useSignal(false);
    const near = useMemo(() => {
        const indexes = new Set();
        for (const [at, line] of lines.entries()) {
            if (line.kind === "same") continue;
            for (let index = at - CONTEXT_LINES; index <= at + CONTEXT_LINES; index += 1) indexes.add(index);
        }
        return indexes;
    }, [lines]);
    if (near.size === 0) return p({ class: "muted" }, same);
    /** @type {import("../../types/tags.d.ts").Content[]} */
    const rows = [];
    let hidden = 0;
    const gap = (/** @type {number} */ at) => {
        if (hidden)
            rows.push(li({ key: `gap-${at}`, class: "hidden-lines muted" }, `… ${plural(hidden, "unchanged line")}`));
        hidden = 0;
    };
    for (const [at, line] of lines.entries()) {
        if (!all.value && !near.has(at)) {
            hidden += 1;
            continue;
        }
        gap(at);
        const sign = line.kind === "same" ? " " : line.kind === "gone" ? "−" : "+";
        rows.push(
            li(
                { key: at, class: line.kind },
                span({ class: "line-number", "aria-hidden": "true" }, String(line.after ?? line.before ?? "")),
                span({ class: "sign" }, sign),
                span(null, visibleLine(line.text)),
            ),
        );
    }
    gap(lines.length);
    return div(
        { class: "source diff", tabIndex: 0, role: "region", "aria-label": "Differences" },
        ol(null, rows),
        all.value
            ? null
            : button(
                  {
                      type: "button",
                      onClick: () => {
                          all.value = true;
                      },
                  },
                  "Show all lines",
              ),
    );
});

/** @param {string} line */
function visibleLine(line) {
    // A tab is no hidden character here.
    return line
        .split("\t")
        .map(part => visible(part, MAX_LINE_LENGTH))
        .join("    ");
}
