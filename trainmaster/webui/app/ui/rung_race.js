/** Trials at the rungs of a bracket at one moment: each rung a column, with its cut as a line. */
import { useCallback, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { number, visible } from "../lib/format.js";
import { sceneOf } from "../lib/rungs.js";
import { Drawing } from "./canvas.js";
import { figureExportItems } from "./figure_export.js";
import { Menu } from "./overlay.js";
import { component, tags } from "./tags.js";

/** @import { Axis } from "../lib/axes.js" */
/** @import { Figure } from "./figure_export.js" */
/** @import { Dot, DotLook, RungEvent, RungMoment, Scene } from "../lib/rungs.js" */
/** @import { Sheet } from "./canvas.js" */

const { div, li, p, span, ul } = tags;
const HEIGHT = 420;
const HOVER_DISTANCE = 14; // pixels

/** @type {Record<DotLook, { colour: string, label: string }>} */
const LOOKS = {
    running: { colour: "--running", label: "continues" },
    passed: { colour: "--live", label: "passed" },
    stopped: { colour: "--faded", label: "stopped" },
    paused: { colour: "--waiting", label: "paused" },
    top: { colour: "--completed", label: "completed the top rung" },
    failed: { colour: "--failed", label: "failed" },
};

/** @param {number} width */
const boxOf = width => ({ left: 66, top: 40, right: width - 10, bottom: HEIGHT - 6 });

/**
 * @typedef {object} RaceProperties
 * @property {readonly RungMoment[]} rungs
 * @property {readonly number[]} totals how many reach each rung in all
 * @property {Axis} axis
 * @property {string} unit
 * @property {string} metric
 * @property {string} description what is to be seen, in words
 * @property {number} trial the one that is marked; 0: none
 * @property {number} now number of the arrival that the latest event is about
 * @property {boolean} pauses whether trials wait on the rungs
 * @property {(trial: number) => void} onPick
 * @property {Pick<Figure, "title" | "columns" | "rows">} file what is saved with the drawing
 */
export const Race = component(
    (
        /** @type {RaceProperties} */ {
            rungs,
            totals,
            axis,
            unit,
            metric,
            description,
            trial,
            now,
            pauses,
            onPick,
            file,
        },
    ) => {
        const over = useSignal(/** @type {Dot | null} */ (null));
        const width = useSignal(0);
        const scene = useMemo(
            () => sceneOf(rungs, totals, axis, boxOf(width.value || 800), unit),
            [rungs, totals, axis, unit, width.value],
        );
        const draw = useCallback(
            (/** @type {CanvasRenderingContext2D} */ pen, /** @type {Sheet} */ sheet) => {
                if (!sheet.paper) width.value = sheet.width;
                const paperScene = sheet.paper ? sceneOf(rungs, totals, axis, boxOf(sheet.width), unit) : scene;
                drawRace(pen, sheet, paperScene, metric, event => event.number === now || event.trial === trial);
            },
            [scene, metric, trial, now],
        );
        /** @param {number} atX @param {number} atY @param {string} what */
        const onPointer = (atX, atY, what) => {
            let best = HOVER_DISTANCE;
            /** @type {Dot | null} */
            let nearest = null;
            for (const { x, y, dot } of scene.dots) {
                const away = Math.hypot(x - atX, y - atY);
                if (away < best) {
                    best = away;
                    nearest = dot;
                }
            }
            over.value = what === "leave" ? null : nearest;
            if (what === "up" && nearest) onPick(nearest.event.trial);
        };
        const pointed = over.value;
        return div(
            { class: "rung-race" },
            div(
                { class: "figure-tools" },
                Menu({
                    label: "Save the rung race",
                    text: "Save",
                    class: "plain",
                    items: () => figureExportItems({ ...file, draw, height: HEIGHT }),
                }),
            ),
            Drawing({ label: visible(description, 500), height: HEIGHT, draw, onPointer }),
            ul(
                { class: "legend", "aria-hidden": "true" },
                /** @type {DotLook[]} */ (Object.keys(LOOKS))
                    .filter(look => look !== "paused" || pauses)
                    .map(look =>
                        li(
                            { key: look },
                            span({ class: `rung-dot ${look === "top" ? "done" : look}` }),
                            LOOKS[look].label,
                        ),
                    ),
                li(null, span({ class: "rung-cut" }), "cutoff, with its history"),
            ),
            p(
                { class: "chart-hint muted", "aria-hidden": "true" },
                pointed
                    ? `trial ${pointed.event.trial}: ${LOOKS[pointed.look].label}, ${visible(metric, 40)} ${number(pointed.event.value)}, rank ${pointed.event.rank} of ${pointed.event.of} on arrival`
                    : "Click marks the nearest trial.",
            ),
        );
    },
);

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Sheet} sheet
 * @param {Scene} scene
 * @param {string} metric
 * @param {(event: RungEvent) => boolean} ringed
 */
function drawRace(pen, sheet, scene, metric, ringed) {
    frame(pen, sheet, scene, metric);
    for (const look of /** @type {const} */ (["stopped", "paused", "passed", "failed", "running", "top"])) {
        pen.fillStyle = pen.strokeStyle = sheet.colour(LOOKS[look].colour);
        for (const point of scene.dots) if (point.dot.look === look) mark(pen, point.x, point.y, look, point.leads);
    }
    cuts(pen, sheet, scene);
    pen.strokeStyle = sheet.colour("--series-2");
    pen.lineWidth = 2;
    for (const { x, y, dot } of scene.dots) {
        if (!ringed(dot.event)) continue;
        pen.beginPath();
        pen.arc(x, y, 7, 0, 7);
        pen.stroke();
    }
    pen.lineWidth = 1;
}

/** @param {CanvasRenderingContext2D} pen @param {Sheet} sheet @param {Scene} scene @param {string} metric */
function frame(pen, sheet, scene, metric) {
    pen.strokeStyle = sheet.colour("--line");
    pen.fillStyle = sheet.colour("--muted");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const { y, text } of scene.marks) {
        line(pen, 66, y, sheet.width - 10, y);
        pen.fillText(text, 60, y);
    }
    pen.textAlign = "left";
    for (const { left, right, name, note } of scene.columns) {
        line(pen, left - 8, 0, left - 8, sheet.height);
        pen.fillStyle = sheet.colour("--text");
        pen.fillText(visible(name, 40), left, 10, right - left);
        pen.fillStyle = sheet.colour("--muted");
        pen.fillText(note, left, 26, right - left);
    }
    pen.textAlign = "center";
    pen.save();
    pen.translate(10, (scene.top + scene.bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(visible(metric, 40), 0, 0);
    pen.restore();
}

/** @param {CanvasRenderingContext2D} pen @param {Sheet} sheet @param {Scene} scene */
function cuts(pen, sheet, scene) {
    pen.strokeStyle = sheet.colour("--text");
    for (const { column, points, now } of scene.cuts) {
        const columnBox = scene.columns[column];
        if (!columnBox) continue;
        pen.globalAlpha = 0.6;
        pen.beginPath();
        let level = points[0]?.[1] ?? now;
        for (const [x, y] of points) {
            pen.lineTo(x, level);
            pen.lineTo(x, y);
            level = y;
        }
        pen.stroke();
        pen.globalAlpha = 1;
        pen.setLineDash([6, 4]);
        line(pen, columnBox.left, now, columnBox.right, now);
        pen.setLineDash([]);
    }
}

/** @param {CanvasRenderingContext2D} pen @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 */
function line(pen, x1, y1, x2, y2) {
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
    pen.stroke();
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {DotLook} look @param {boolean} leads */
function mark(pen, x, y, look, leads) {
    const size = leads ? 6 : look === "stopped" || look === "paused" ? 2.5 : 3;
    pen.beginPath();
    if (look === "failed") {
        pen.moveTo(x - size, y - size);
        pen.lineTo(x + size, y + size);
        pen.moveTo(x - size, y + size);
        pen.lineTo(x + size, y - size);
        pen.stroke();
        return;
    }
    pen.arc(x, y, size, 0, 7);
    if (look === "running" && !leads) pen.stroke();
    else pen.fill();
}
