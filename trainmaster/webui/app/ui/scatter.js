/** Points of two values of each trial; a click marks the nearest one. */
import { useCallback, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { scaleOf } from "../lib/axes.js";
import { number, tick, visible } from "../lib/format.js";
import { cividis, Drawing } from "./canvas.js";
import { figureExportItems } from "./figure_export.js";
import { Menu } from "./overlay.js";
import { component, tags } from "./tags.js";

/** @import { Kinds, Values } from "../lib/axes.js" */
/** @import { Cell } from "../lib/files.js" */

const { div, p } = tags;
const BOX = { left: 66, top: 10, right: 14, bottom: 40 };
const HOVER_DISTANCE = 12; // pixels
/** @type {readonly number[]} */
const NO_FRONT = [];

/**
 * @typedef {object} ScatterProperties
 * @property {readonly Values[]} rows with `id`
 * @property {string} x column
 * @property {string} y column
 * @property {string} [colour] column
 * @property {(name: string) => string} titleOf
 * @property {ReadonlySet<number>} marked
 * @property {readonly number[]} [front] ids of those that no other beats, along the front
 * @property {(id: number) => void} onPick
 * @property {Kinds} kinds
 * @property {string} source what is shown, for files
 * @property {string} [name] which drawing of the page it is
 * @property {number} [height]
 */
export const Scatter = component(
    (
        /** @type {ScatterProperties} */ {
            rows,
            x,
            y,
            colour = "",
            titleOf,
            marked,
            front = NO_FRONT,
            onPick,
            kinds,
            source,
            name = "scatter",
            height = 300,
        },
    ) => {
        const over = useSignal(/** @type {Values | null} */ (null));
        const size = useSignal(0);
        const across = useMemo(() => scaleOf(x, rows, kinds), [rows, x]);
        const up = useMemo(() => scaleOf(y, rows, kinds), [rows, y]);
        const tint = useMemo(() => (colour ? scaleOf(colour, rows, kinds) : null), [rows, colour]);
        const points = useMemo(
            () =>
                rows.flatMap(row => {
                    const px = across?.position(row[x]) ?? null;
                    const py = up?.position(row[y]) ?? null;
                    return px === null || py === null ? [] : [{ row, px, py }];
                }),
            [rows, across, up],
        );
        const draw = useCallback(
            (/** @type {CanvasRenderingContext2D} */ pen, /** @type {import("./canvas.js").Sheet} */ sheet) => {
                if (!sheet.paper) size.value = sheet.width;
                if (!across || !up) return;
                const wide = sheet.width - BOX.left - BOX.right;
                const high = sheet.height - BOX.top - BOX.bottom;
                pen.strokeStyle = sheet.colour("--line");
                pen.fillStyle = sheet.colour("--muted");
                pen.textBaseline = "middle";
                for (const [axis, upright] of /** @type {const} */ ([
                    [across, false],
                    [up, true],
                ])) {
                    const marks = axis.categories
                        ? axis.categories
                              .slice(0, 8)
                              .map(word => /** @type {const} */ ([axis.position(word) ?? 0, word]))
                        : [0, 0.25, 0.5, 0.75, 1].map(
                              at => /** @type {const} */ ([at, tick(Number(axis.value(at).toPrecision(3)))]),
                          );
                    for (const [at, word] of marks) {
                        const px = BOX.left + (upright ? 0 : at * wide);
                        const py = BOX.top + (upright ? (1 - at) * high : high);
                        pen.beginPath();
                        pen.moveTo(px, py);
                        if (upright) pen.lineTo(px + wide, py);
                        else pen.lineTo(px, py - high);
                        pen.stroke();
                        pen.textAlign = upright ? "right" : "center";
                        pen.fillText(visible(word, 12), upright ? px - 6 : px, upright ? py : py + 12);
                    }
                }
                pen.textAlign = "center";
                pen.fillText(visible(titleOf(x), 40), BOX.left + wide / 2, sheet.height - 8);
                pen.save();
                pen.translate(10, BOX.top + high / 2);
                pen.rotate(-Math.PI / 2);
                pen.fillText(visible(titleOf(y), 40), 0, 0);
                pen.restore();
                for (const { row, px, py } of points) {
                    const bold = marked.has(Number(row["id"]));
                    const share = tint?.position(row[colour]) ?? null;
                    pen.fillStyle = bold
                        ? sheet.colour("--series-2")
                        : share === null
                          ? sheet.colour("--series-1")
                          : cividis(share);
                    pen.globalAlpha = bold ? 1 : 0.65;
                    pen.beginPath();
                    pen.arc(BOX.left + px * wide, BOX.top + (1 - py) * high, bold ? 5 : 3, 0, 7);
                    pen.fill();
                }
                pen.globalAlpha = 1;
                drawFront(pen, sheet, placesOf(front, points, wide, high));
            },
            [points, tint, marked, front, x, y],
        );
        /** @param {number} atX @param {number} atY @param {string} what */
        const onPointer = (atX, atY, what) => {
            let best = HOVER_DISTANCE;
            /** @type {Values | null} */
            let nearest = null;
            for (const { row, px, py } of points) {
                const away = Math.hypot(
                    BOX.left + px * (size.value - BOX.left - BOX.right) - atX,
                    BOX.top + (1 - py) * (height - BOX.top - BOX.bottom) - atY,
                );
                if (away < best) {
                    best = away;
                    nearest = row;
                }
            }
            over.value = what === "leave" ? null : nearest;
            if (what === "up" && nearest) onPick(Number(nearest["id"]));
        };
        const hovered = over.value;
        const words = `${points.length} trials: ${titleOf(y)} over ${titleOf(x)}. The table below lists the same trials.`;
        const columns = ["id", x, y, ...(colour ? [colour] : [])];
        const items = () =>
            figureExportItems({
                title: `${source}, ${titleOf(y)} over ${titleOf(x)}`,
                draw,
                height,
                columns: columns,
                rows: () => points.map(({ row }) => columns.map(name => /** @type {Cell} */ (row[name]))),
            });
        return div(
            { class: "scatter" },
            div({ class: "figure-tools" }, Menu({ label: `Save the ${name}`, text: "Save", class: "plain", items })),
            Drawing({ label: visible(words, 300), height, draw, onPointer }),
            p(
                { class: "chart-hint muted", "aria-hidden": "true" },
                hovered
                    ? `trial ${hovered["id"]}: ${visible(titleOf(x), 40)} ${valueText(hovered[x])}, ${visible(titleOf(y), 40)} ${valueText(hovered[y])}`
                    : "Click marks the nearest trial.",
            ),
        );
    },
);

/**
 * @param {readonly number[]} front
 * @param {readonly { row: Values, px: number, py: number }[]} points
 * @param {number} wide
 * @param {number} high
 * @returns {[number, number][]}
 */
function placesOf(front, points, wide, high) {
    const byId = new Map(points.map(point => [Number(point.row["id"]), point]));
    return front.flatMap(id => {
        const point = byId.get(id);
        return point ? [[BOX.left + point.px * wide, BOX.top + (1 - point.py) * high]] : [];
    });
}

/**
 * A ring around each point of the front, and stairs between them: beyond these each point is beaten.
 * @param {CanvasRenderingContext2D} pen
 * @param {import("./canvas.js").Sheet} sheet
 * @param {[number, number][]} places
 */
function drawFront(pen, sheet, places) {
    pen.strokeStyle = sheet.colour("--series-2");
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const [at, [px, py]] of places.entries()) {
        const before = places[at - 1];
        if (before) pen.lineTo(px, before[1]);
        else pen.moveTo(px, py);
        pen.lineTo(px, py);
    }
    pen.stroke();
    for (const [px, py] of places) {
        pen.beginPath();
        pen.arc(px, py, 6, 0, 7);
        pen.stroke();
    }
    pen.lineWidth = 1;
}

/** @param {unknown} value */
function valueText(value) {
    return typeof value === "number" ? number(value) : visible(String(value ?? "–"), 40);
}
