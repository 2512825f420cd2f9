/** The jobs of a trial as bars over time, with a metric below on the same axis. */
import { useCallback, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { duration, exact, number, plural, tick, visible } from "../lib/format.js";
import { extent, ticks } from "../lib/series.js";
import { Drawing } from "./canvas.js";
import { figureExportItems } from "./figure_export.js";
import { Menu } from "./overlay.js";
import { component, tags } from "./tags.js";

/** @import { Timeline, PartKind } from "../lib/attempt_timeline.js" */
/** @import { Values } from "../lib/series.js" */

const { div, li, p, span, ul } = tags;

const LEFT = 66;
const RIGHT = 16;
const TOP = 8;
const BAR = 22; // pixels of an attempt
const AXIS = 24;
const PLOT = 130;
const MAX_BARS = 60;

const KINDS = /** @type {[PartKind | "saved" | "asked", string][]} */ ([
    ["wait", "queued"],
    ["run", "running"],
    ["lost", "lost work"],
    ["limit", "until the time limit"],
    ["saved", "checkpoint"],
    ["asked", "preemption requested"],
]);

/**
 * @typedef {object} GanttProperties
 * @property {Timeline} life
 * @property {{ title: string, at: number[], y: Values } | null} curve a metric; `at` in seconds since 1970
 * @property {string} source whose jobs they are, for files
 */
export const Gantt = component((/** @type {GanttProperties} */ { life, curve, source }) => {
    const hint = useSignal("");
    const wide = useSignal(0);
    const bars = life.bars.slice(-MAX_BARS);
    const rows = bars.length * BAR;
    const height = TOP + rows + AXIS + (curve ? PLOT : 0);
    const xOf = (/** @type {number} */ at, /** @type {number} */ width) =>
        LEFT + ((width - LEFT - RIGHT) * (at - life.from)) / Math.max(1, life.to - life.from);
    const range = useMemo(() => (curve ? extent([curve.y]) : null), [curve]);
    const draw = useCallback(
        (/** @type {CanvasRenderingContext2D} */ pen, /** @type {import("./canvas.js").Sheet} */ sheet) => {
            if (!sheet.paper) wide.value = sheet.width;
            const x = (/** @type {number} */ at) => xOf(at, sheet.width);
            pen.textBaseline = "middle";
            drawTime(pen, sheet, life, x, TOP + rows, height - (curve ? AXIS : 0));
            for (const [at, bar] of bars.entries()) {
                const y = TOP + at * BAR;
                pen.fillStyle = sheet.colour("--muted");
                pen.textAlign = "right";
                pen.fillText(`job ${bar.attempt.attempt}`, LEFT - 8, y + BAR / 2);
                for (const part of bar.parts) {
                    const left = x(part.from);
                    const width = Math.max(1, x(part.to) - left);
                    pen.fillStyle = sheet.colour(colourOf(part.kind));
                    pen.globalAlpha = part.kind === "wait" || part.kind === "limit" ? 0.35 : 0.85;
                    if (part.kind === "wait") pen.fillRect(left, y + 8, width, BAR - 16);
                    else pen.fillRect(left, y + 3, width, BAR - 6);
                    pen.globalAlpha = 1;
                }
                pen.fillStyle = sheet.colour("--back");
                pen.strokeStyle = sheet.colour("--text");
                for (const saved of bar.saved) {
                    pen.beginPath();
                    pen.arc(x(saved), y + BAR / 2, 3, 0, 7);
                    pen.fill();
                    pen.stroke();
                }
                if (bar.preempted !== null) {
                    pen.beginPath();
                    pen.moveTo(x(bar.preempted), y);
                    pen.lineTo(x(bar.preempted), y + BAR);
                    pen.stroke();
                }
            }
            if (curve && range) drawCurve(pen, sheet, curve, range, x, TOP + rows + AXIS, height - AXIS);
        },
        [life, curve, range],
    );
    /** @param {number} atX @param {number} atY @param {string} what */
    const onPointer = (atX, atY, what) => {
        const bar = bars[Math.floor((atY - TOP) / BAR)];
        const moment = life.from + ((atX - LEFT) / Math.max(1, wide.value - LEFT - RIGHT)) * (life.to - life.from);
        if (what === "leave" || atX < LEFT) hint.value = "";
        else if (bar) {
            const part = bar.parts.find(candidate => moment >= candidate.from && moment <= candidate.to);
            const words = part
                ? `${KINDS.find(entry => entry[0] === part.kind)?.[1]} for ${duration(part.to - part.from)}`
                : "";
            hint.value = `job ${bar.attempt.attempt} ${words}; ${exact(moment * 1000)}`;
        } else if (curve) {
            const next = curve.at.findIndex(at => at >= moment);
            const value = next < 0 ? null : (curve.y[next] ?? null);
            hint.value = `${visible(curve.title, 40)} ${number(value)}; ${exact(moment * 1000)}`;
        }
    };
    const words = `${plural(life.bars.length, "job")} over ${duration(life.to - life.from)}: ${duration(life.waited)} queued, ${duration(life.ran)} running. The table below lists them.`;
    const items = () =>
        figureExportItems({
            title: `${source}, jobs`,
            draw,
            height,
            columns: ["job", "part", "from", "to"],
            rows: () =>
                bars.flatMap(bar => bar.parts.map(part => [bar.attempt.attempt, part.kind, part.from, part.to])),
        });
    return div(
        { class: "gantt" },
        div(
            { class: "figure-tools" },
            Menu({ label: "Save the drawing of jobs", text: "Save", class: "plain", items }),
        ),
        Drawing({ label: words, height, draw, onPointer }),
        p({ class: "chart-hint muted", "aria-hidden": "true" }, hint.value || " "),
        ul(
            { class: "legend", "aria-hidden": "true" },
            KINDS.map(([kind, text]) => li({ key: kind }, span({ class: `gantt-key ${kind}` }), text)),
        ),
        life.bars.length > MAX_BARS
            ? p({ class: "muted" }, `The last ${MAX_BARS} of ${life.bars.length} jobs are shown.`)
            : null,
    );
});

/** @param {PartKind} kind */
function colourOf(kind) {
    return { wait: "--waiting", run: "--series-1", lost: "--failed", limit: "--faded" }[kind];
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {import("./canvas.js").Sheet} sheet
 * @param {Timeline} life
 * @param {(at: number) => number} x
 * @param {number} y
 * @param {number} bottom
 */
function drawTime(pen, sheet, life, x, y, bottom) {
    const length = Math.max(1, life.to - life.from);
    const [unit, word] =
        length > 2 * 86400 ? [86400, "d"] : length > 2 * 3600 ? [3600, "h"] : length > 120 ? [60, "min"] : [1, "s"];
    pen.strokeStyle = sheet.colour("--line");
    pen.fillStyle = sheet.colour("--muted");
    pen.textAlign = "center";
    for (const mark of ticks(0, length / unit, sheet.width > 600 ? 10 : 5)) {
        const at = x(life.from + mark * unit);
        pen.beginPath();
        pen.moveTo(at, TOP);
        pen.lineTo(at, bottom);
        pen.stroke();
        pen.fillText(`${tick(mark)} ${word}`, at, y + AXIS / 2);
    }
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {import("./canvas.js").Sheet} sheet
 * @param {{ title: string, at: number[], y: Values }} curve
 * @param {[number, number]} range
 * @param {(at: number) => number} x
 * @param {number} top
 * @param {number} bottom
 */
function drawCurve(pen, sheet, curve, range, x, top, bottom) {
    const [low, high] = range;
    const y = (/** @type {number} */ value) => bottom - 4 - ((bottom - top - 8) * (value - low)) / (high - low || 1);
    pen.fillStyle = sheet.colour("--muted");
    pen.textAlign = "right";
    for (const mark of ticks(low, high, 3)) pen.fillText(tick(mark), LEFT - 8, y(mark));
    pen.strokeStyle = sheet.colour("--series-2");
    pen.lineWidth = 1.5;
    pen.beginPath();
    let open = false;
    for (const [step, at] of curve.at.entries()) {
        const value = curve.y[step] ?? null;
        if (value === null || !Number.isFinite(value)) continue;
        if (open) pen.lineTo(x(at), y(value));
        else pen.moveTo(x(at), y(value));
        open = true;
    }
    pen.stroke();
    pen.lineWidth = 1;
    pen.textAlign = "left";
    pen.fillText(visible(curve.title, 40), LEFT + 4, top + 4);
}
