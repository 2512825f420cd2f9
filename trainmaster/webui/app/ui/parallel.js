/** Parallel coordinates: a line a trial, an axis a hyperparameter; ranges are chosen on the axes. */
import { useCallback, useMemo, useRef } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { inside, rangePlaces, rangeText, scaleOf } from "../lib/axes.js";
import { tick, visible } from "../lib/format.js";
import { cividis, Drawing } from "./canvas.js";
import { figureExportItems } from "./figure_export.js";
import { Menu } from "./overlay.js";
import { component, tags } from "./tags.js";

/** @import { Axis, Kinds, Values } from "../lib/axes.js" */
/** @import { Cell } from "../lib/files.js" */

const { button, div, input, label, span } = tags;

const HEIGHT = 320;
const TOP = 12;
const BOTTOM = 12;
const TITLES = 24; // below, on paper
const SIDE = 70;
const LINES_PER_FRAME = 1500; // lines drawn between two looks at the pointer
const GRAB_DISTANCE = 14; // pixels beside an axis

/**
 * @typedef {object} ParallelProperties
 * @property {readonly Values[]} rows with `id`
 * @property {string[]} names of the axes, the last one gives the colours
 * @property {(name: string) => string} titleOf
 * @property {boolean} smaller whether a small value of the last axis is good
 * @property {Record<string, string>} ranges as `rangeText` writes them
 * @property {(ranges: Record<string, string>) => void} onRanges
 * @property {ReadonlySet<number>} marked
 * @property {Kinds} kinds
 * @property {string} source what is shown, for files
 */
export const Parallel = component(
    (/** @type {ParallelProperties} */ { rows, names, titleOf, smaller, ranges, onRanges, marked, kinds, source }) => {
        const axes = useMemo(() => names.flatMap(name => scaleOf(name, rows, kinds) ?? []), [rows, names.join("\n")]);
        const dragged = useSignal(/** @type {{ at: number, from: number, to: number } | null} */ (null));
        const width = useRef(0);
        const lines = useMemo(() => places(rows, axes, smaller), [rows, axes, smaller]);
        const chosen = useMemo(() => {
            /** @type {Map<number, [number, number]>} */
            const selected = new Map();
            for (const [at, axis] of axes.entries()) {
                const text = ranges[axis.name];
                const range = text === undefined ? null : rangePlaces(axis, text);
                if (range) selected.set(at, range);
            }
            const drag = dragged.value;
            if (drag) selected.set(drag.at, [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)]);
            return selected;
        }, [axes, ranges, dragged.value]);
        const draw = useCallback(
            (/** @type {CanvasRenderingContext2D} */ pen, /** @type {import("./canvas.js").Sheet} */ sheet) => {
                if (!sheet.paper) width.current = sheet.width;
                const inChoice = (/** @type {Line} */ line) =>
                    [...chosen].every(([at, [low, high]]) => {
                        const position = line.places[at] ?? null;
                        return position !== null && inside(position, low, high);
                    });
                const front = lines.filter(inChoice);
                if (front.length < lines.length) {
                    pen.strokeStyle = sheet.colour("--faded");
                    pen.globalAlpha = 0.25;
                    pen.beginPath();
                    const highlighted = new Set(front);
                    for (const line of lines) if (!highlighted.has(line)) trace(pen, line, sheet.width, axes.length);
                    pen.stroke();
                    pen.globalAlpha = 1;
                }
                let at = 0;
                const piece = () => {
                    // The good ones last, on top of the others.
                    for (const end = Math.min(front.length, at + LINES_PER_FRAME); at < end; at += 1) {
                        const line = front[at];
                        if (!line) continue;
                        const bold = marked.has(line.id);
                        pen.strokeStyle = bold ? sheet.colour("--series-2") : cividis(line.good);
                        pen.globalAlpha = bold ? 1 : front.length > 300 ? 0.35 : 0.7;
                        pen.lineWidth = bold ? 2.5 : 1;
                        pen.beginPath();
                        trace(pen, line, sheet.width, axes.length);
                        pen.stroke();
                    }
                    pen.globalAlpha = 1;
                    drawAxes(pen, sheet, axes, chosen);
                    if (sheet.paper) drawTitles(pen, sheet, axes, titleOf);
                    if (at < front.length) sheet.next(piece);
                };
                piece();
            },
            [lines, chosen, marked],
        );
        /** @param {number} x @param {number} y @param {"move" | "down" | "up" | "leave"} what */
        const onPointer = (x, y, what) => {
            const position = Math.min(1, Math.max(0, 1 - (y - TOP) / (HEIGHT - TOP - BOTTOM)));
            const drag = dragged.value;
            if (what === "down") {
                const at = axes.findIndex(
                    (_, index) => Math.abs(axisX(index, axes.length, width.current) - x) < GRAB_DISTANCE,
                );
                if (at >= 0) dragged.value = { at, from: position, to: position };
            } else if (drag && what === "move") {
                dragged.value = { ...drag, to: position };
            } else if (drag && what === "up") {
                dragged.value = null;
                const axis = axes[drag.at];
                if (!axis) return;
                const { [axis.name]: _, ...rest } = ranges;
                const wide = Math.abs(drag.to - drag.from) > 0.01;
                onRanges(wide ? { ...rest, [axis.name]: rangeText(axis, drag.from, drag.to) } : rest);
            }
        };
        if (axes.length < 2) return div({ class: "muted" }, "Nothing to compare yet: all trials have the same values.");
        const words = `Parallel coordinates of ${lines.length} trials over ${axes.map(axis => titleOf(axis.name)).join(", ")}. The table below lists the same trials.`;
        const columns = ["id", ...axes.map(axis => axis.name)];
        const items = () =>
            figureExportItems({
                title: `${source}, parallel coordinates`,
                draw,
                height: HEIGHT + TITLES,
                columns: columns,
                rows: () => rows.map(row => columns.map(name => /** @type {Cell} */ (row[name]))),
            });
        return div(
            { class: "parallel" },
            div(
                { class: "figure-tools" },
                Menu({ label: "Save the parallel coordinates", text: "Save", class: "plain", items }),
            ),
            Drawing({ label: visible(words, 600), height: HEIGHT, draw, onPointer, class: "brushed" }),
            div(
                { class: "parallel-axes" },
                axes.map(axis => Range({ key: axis.name, axis, title: titleOf(axis.name), ranges, onRanges })),
            ),
        );
    },
);

/** An axis' name, and its range for the keyboard. */
const Range = component(
    (
        /** @type {{ axis: Axis, title: string, ranges: Record<string, string>, onRanges: (ranges: Record<string, string>) => void }} */ {
            axis,
            title,
            ranges,
            onRanges,
        },
    ) => {
        const range = ranges[axis.name] ?? "";
        const set = (/** @type {string} */ text) => {
            const { [axis.name]: _, ...rest } = ranges;
            onRanges(text && rangePlaces(axis, text) ? { ...rest, [axis.name]: text } : rest);
        };
        return label(
            { class: "parallel-axis" },
            span({ title: visible(axis.name) }, visible(title, 28)),
            input({
                type: "text",
                value: range,
                placeholder: axis.categories
                    ? axis.categories.slice(0, 2).join("|")
                    : `${shortTick(axis.low)}..${shortTick(axis.high)}`,
                "aria-label": `Range of ${visible(title, 60)}`,
                onChange: event => set(event.currentTarget.value.trim()),
            }),
            range
                ? button({ type: "button", class: "plain", "aria-label": "Any value", onClick: () => set("") }, "×")
                : null,
        );
    },
);

/** @typedef {{ id: number, good: number, places: (number | null)[] }} Line */

/**
 * @param {readonly Values[]} rows
 * @param {Axis[]} axes
 * @param {boolean} smaller
 * @returns {Line[]} the best ones last
 */
function places(rows, axes, smaller) {
    const goal = axes.at(-1);
    return rows
        .map(row => {
            const position = goal ? goal.position(row[goal.name]) : null;
            return {
                id: Number(row["id"]),
                good: position === null ? -1 : smaller ? 1 - position : position,
                places: axes.map(axis => axis.position(row[axis.name])),
            };
        })
        .sort((a, b) => a.good - b.good);
}

/** @param {number} at @param {number} count @param {number} width */
function axisX(at, count, width) {
    const side = Math.min(SIDE, width / (count * 2));
    return side + ((width - 2 * side) * at) / Math.max(1, count - 1);
}

/** @param {CanvasRenderingContext2D} pen @param {Line} line @param {number} width @param {number} count */
function trace(pen, line, width, count) {
    let open = false;
    for (const [at, position] of line.places.entries()) {
        if (position === null) {
            open = false;
            continue;
        }
        const x = axisX(at, count, width);
        const y = TOP + (1 - position) * (HEIGHT - TOP - BOTTOM);
        if (open) pen.lineTo(x, y);
        else pen.moveTo(x, y);
        open = true;
    }
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {import("./canvas.js").Sheet} sheet
 * @param {Axis[]} axes
 * @param {Map<number, [number, number]>} chosen
 */
function drawAxes(pen, sheet, axes, chosen) {
    const length = HEIGHT - TOP - BOTTOM;
    pen.lineWidth = 1;
    for (const [at, axis] of axes.entries()) {
        const x = axisX(at, axes.length, sheet.width);
        pen.strokeStyle = sheet.colour("--strong-line");
        pen.beginPath();
        pen.moveTo(x, TOP);
        pen.lineTo(x, HEIGHT - BOTTOM);
        pen.stroke();
        const range = chosen.get(at);
        if (range) {
            pen.fillStyle = sheet.colour("--primary");
            pen.globalAlpha = 0.45;
            pen.fillRect(x - 5, TOP + (1 - Math.min(1, range[1])) * length, 10, (range[1] - range[0]) * length);
            pen.globalAlpha = 1;
        }
        const marks = axis.categories
            ? axis.categories.map((word, index, all) => /** @type {const} */ ([(index + 0.5) / all.length, word]))
            : [0, 0.25, 0.5, 0.75, 1].map(
                  position => /** @type {const} */ ([position, shortTick(axis.value(position))]),
              );
        pen.textAlign = at === axes.length - 1 ? "right" : "left";
        pen.textBaseline = "middle";
        for (const [position, word] of marks.slice(0, 12)) {
            const y = TOP + (1 - position) * length;
            const text = visible(word, 14);
            const left = at === axes.length - 1 ? x - 6 : x + 6;
            pen.strokeStyle = sheet.colour("--back");
            pen.lineWidth = 4;
            pen.strokeText(text, left, y);
            pen.fillStyle = sheet.colour("--text");
            pen.fillText(text, left, y);
            pen.lineWidth = 1;
        }
    }
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {import("./canvas.js").Sheet} sheet
 * @param {Axis[]} axes
 * @param {(name: string) => string} titleOf
 */
function drawTitles(pen, sheet, axes, titleOf) {
    pen.fillStyle = sheet.colour("--text");
    pen.textAlign = "center";
    for (const [at, axis] of axes.entries()) {
        pen.fillText(visible(titleOf(axis.name), 20), axisX(at, axes.length, sheet.width), HEIGHT + TITLES / 3);
    }
}

/** @param {number} value */
function shortTick(value) {
    return tick(Number.isInteger(value) ? value : Number(value.toPrecision(2)));
}
