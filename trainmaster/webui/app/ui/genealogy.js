/** Trials as lanes over time, each copy with a line from the lane that it was copied from. */
import { useCallback, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { number, tick, visible } from "../lib/format.js";
import { changeText } from "../lib/lineage.js";
import { ticks } from "../lib/series.js";
import { Drawing } from "./canvas.js";
import { figureExportItems } from "./figure_export.js";
import { Menu } from "./overlay.js";
import { component, tags } from "./tags.js";

/** @import { Lane } from "../lib/lineage.js" */
/** @import { TrialLook } from "../lib/trials.js" */
/** @import { Sheet } from "./canvas.js" */

const { div, li, p, span, ul } = tags;
const LEFT = 76;
const RIGHT = 70;
const TOP = 8;
const LANE = 18; // pixels
const AXIS = 40;

/** @type {Record<TrialLook, { colour: string, label: string }>} */
const LOOKS = {
    live: { colour: "--running", label: "running" },
    paused: { colour: "--waiting", label: "paused by the search" },
    ended: { colour: "--live", label: "trained to its end" },
    stopped: { colour: "--strong-line", label: "replaced" },
    failed: { colour: "--failed", label: "failed" },
};

/**
 * @typedef {object} GenealogyProperties
 * @property {readonly Lane[]} lanes
 * @property {(lane: Lane) => TrialLook} lookOf
 * @property {ReadonlySet<number>} descent ids of the best trial and those that it descends from
 * @property {ReadonlySet<number>} marked
 * @property {string} unit of the axis
 * @property {string} metric
 * @property {string} source what is shown, for files
 * @property {(id: number) => void} onPick
 */
export const Genealogy = component((/** @type {GenealogyProperties} */ properties) => {
    const { lanes, lookOf, descent, marked, unit, metric, source, onPick } = properties;
    const over = useSignal(/** @type {Lane | null} */ (null));
    const height = TOP + lanes.length * LANE + AXIS;
    const last = useMemo(() => Math.max(...lanes.map(lane => lane.to), 1e-9), [lanes]);
    const draw = useCallback(
        (/** @type {CanvasRenderingContext2D} */ pen, /** @type {Sheet} */ sheet) => {
            const x = (/** @type {number} */ at) => LEFT + ((sheet.width - LEFT - RIGHT) * at) / last;
            drawAxis(pen, sheet, last, x, height, unit);
            for (const lane of lanes) drawLink(pen, sheet, lane, x, descent.has(lane.id));
            for (const lane of lanes) {
                drawLane(pen, sheet, lane, x, lookOf(lane), {
                    best: descent.has(lane.id),
                    marked: marked.has(lane.id),
                });
            }
        },
        [lanes, descent, marked, unit],
    );
    /** @param {number} _atX @param {number} atY @param {string} what */
    const onPointer = (_atX, atY, what) => {
        const lane = lanes[Math.floor((atY - TOP) / LANE)] ?? null;
        over.value = what === "leave" ? null : lane;
        if (what === "up" && lane) onPick(lane.id);
    };
    const copies = lanes.filter(lane => lane.parent).length;
    const words = `${lanes.length} trials, ${copies} of them copies of others, over ${unit}. The tables below list the same.`;
    const items = () =>
        figureExportItems({
            title: `${source}, lineage`,
            draw,
            height,
            columns: ["trial", "parent", "from", "to", "best", "changes"],
            rows: () =>
                lanes.map(lane => [
                    lane.id,
                    lane.parent?.id ?? null,
                    lane.from,
                    lane.to,
                    /** @type {number | null} */ (lane.row["best"]),
                    lane.parent ? changeText(lane.changes) : "",
                ]),
        });
    return div(
        { class: "genealogy" },
        div({ class: "figure-tools" }, Menu({ label: "Save the lineage", text: "Save", class: "plain", items })),
        Drawing({ label: visible(words, 300), height, draw, onPointer }),
        ul(
            { class: "legend", "aria-hidden": "true" },
            /** @type {TrialLook[]} */ (Object.keys(LOOKS))
                .filter(look => lanes.some(lane => lookOf(lane) === look))
                .map(look => li({ key: look }, span({ class: `swatch lane-${look}` }), LOOKS[look].label)),
            li(null, span({ class: "swatch lane-best" }), "the best and what it descends from"),
        ),
        p(
            { class: "chart-hint muted", "aria-hidden": "true" },
            over.value ? hintOf(over.value, metric) : "Click marks the trial.",
        ),
    );
});

/** @param {Lane} lane @param {string} metric */
function hintOf(lane, metric) {
    const best =
        typeof lane.row["best"] === "number" ? `, best ${visible(metric, 40)} ${number(lane.row["best"])}` : "";
    return lane.parent
        ? `trial ${lane.id}, a copy of trial ${lane.parent.id}: ${changeText(lane.changes)}${best}`
        : `trial ${lane.id}${best}`;
}

/** @param {Lane} lane */
const middle = lane => TOP + (lane.at + 0.5) * LANE;

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Sheet} sheet
 * @param {number} last
 * @param {(at: number) => number} x
 * @param {number} height
 * @param {string} unit
 */
function drawAxis(pen, sheet, last, x, height, unit) {
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    pen.lineWidth = 1;
    pen.strokeStyle = sheet.colour("--line");
    pen.fillStyle = sheet.colour("--muted");
    for (const at of ticks(0, last, 8)) {
        pen.beginPath();
        pen.moveTo(x(at), TOP);
        pen.lineTo(x(at), height - AXIS + 4);
        pen.stroke();
        pen.fillText(tick(at), x(at), height - AXIS + 14);
    }
    pen.fillText(visible(unit, 60), (x(0) + x(last)) / 2, height - 8);
}

/**
 * From the lane of the parent, as it was when it was copied, to the beginning of the copy.
 * @param {CanvasRenderingContext2D} pen
 * @param {Sheet} sheet
 * @param {Lane} lane
 * @param {(at: number) => number} x
 * @param {boolean} best
 */
function drawLink(pen, sheet, lane, x, best) {
    const { parent } = lane;
    if (!parent) return;
    const left = x(Math.min(lane.from, parent.to));
    pen.strokeStyle = sheet.colour(best ? "--series-1" : "--strong-line");
    pen.lineWidth = best ? 2 : 1;
    pen.beginPath();
    pen.moveTo(left, middle(parent));
    pen.lineTo(left, middle(lane));
    pen.lineTo(x(lane.from), middle(lane));
    pen.stroke();
    pen.fillStyle = pen.strokeStyle;
    pen.beginPath();
    pen.arc(left, middle(parent), 2.5, 0, 7);
    pen.fill();
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Sheet} sheet
 * @param {Lane} lane
 * @param {(at: number) => number} x
 * @param {TrialLook} look
 * @param {{ best: boolean, marked: boolean }} how
 */
function drawLane(pen, sheet, lane, x, look, { best, marked }) {
    const y = middle(lane);
    const end = x(lane.to);
    pen.strokeStyle = pen.fillStyle = sheet.colour(marked ? "--series-2" : best ? "--series-1" : LOOKS[look].colour);
    pen.lineWidth = best || marked ? 3 : 1.5;
    pen.beginPath();
    pen.moveTo(x(lane.from), y);
    pen.lineTo(Math.max(end, x(lane.from) + 1), y);
    if (look === "failed") {
        pen.moveTo(end - 4, y - 4);
        pen.lineTo(end + 4, y + 4);
        pen.moveTo(end - 4, y + 4);
        pen.lineTo(end + 4, y - 4);
    }
    pen.stroke();
    if (look === "live" || look === "ended") {
        pen.beginPath();
        pen.arc(end, y, 3, 0, 7);
        pen.fill();
    }
    pen.lineWidth = 1;
    pen.fillStyle = sheet.colour(best ? "--text" : "--muted");
    pen.textAlign = "right";
    pen.fillText(`trial ${lane.id}`, LEFT - 8, y);
    pen.textAlign = "left";
    if (typeof lane.row["best"] === "number") pen.fillText(number(lane.row["best"]), end + 8, y);
}
