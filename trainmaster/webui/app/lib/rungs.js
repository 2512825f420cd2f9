/**
 * The race of trials over the rungs of a bracket: what a search knew at a moment, in figures, in words, and where it is
 * drawn. A moment is a number of events: after the first, after the second, and so on.
 */
import { numeric } from "./axes.js";
import { number, plural, tick } from "./format.js";

/** @import { RungRace } from "../../types/api.d.ts" */
/** @import { Axis } from "./axes.js" */
/**
 * @typedef {object} RungEvent a trial reached a rung
 * @property {number} number from 1, over all brackets
 * @property {number} arrival number of the trial's arrival at this rung: its own, but for what follows a pause there
 * @property {number} at seconds since 1970
 * @property {number} bracket from 0
 * @property {number} rung from 0
 * @property {number} trial
 * @property {number | null} value null: failed
 * @property {"goes on" | "stopped" | "paused" | "resumed" | "top" | "failed"} decision
 * @property {number} rank from 1
 * @property {number} of
 * @property {number} keep
 * @property {number | null} cut the worst value that went on then
 * @property {number | null} story
 */
/** @typedef {"running" | "passed" | "stopped" | "paused" | "top" | "failed"} DotLook running: on its way to the next rung */
/** @typedef {{ event: RungEvent, look: DotLook }} Dot `event`: its arrival */
/**
 * @typedef {object} RungMoment a rung as it was
 * @property {number} units
 * @property {Dot[]} dots who had reached it, in order
 * @property {number | null} cut
 * @property {number} keep
 * @property {Dot | null} best
 */

/**
 * The events of an answer, in order.
 * @param {RungRace} answer
 * @returns {RungEvent[]}
 */
export function eventsOf(answer) {
    /** @type {Map<string, number>} */
    const arrivals = new Map();
    return answer.rows.map((row, at) => {
        const named = Object.fromEntries(answer.columns.map((name, index) => [name, row[index]]));
        const number = answer.first + at;
        const place = `${named["bracket"]} ${named["rung"]} ${named["trial"]}`;
        if (!arrivals.has(place)) arrivals.set(place, number);
        return /** @type {RungEvent} */ ({ ...named, number, arrival: arrivals.get(place) });
    });
}

/** How many trials reach a rung in all. @param {readonly RungEvent[]} events of one bracket @param {number} rung */
export function arrivalsAt(events, rung) {
    return events.filter(event => event.rung === rung && event.arrival === event.number).length;
}

/**
 * A bracket as it was after the event `at`.
 * @param {readonly RungEvent[]} events of all brackets
 * @param {number} bracket
 * @param {readonly number[]} units of its rungs
 * @param {number} at number of an event; 0: before the first
 * @param {boolean} smaller whether smaller values are better
 * @returns {RungMoment[]}
 */
export function momentOf(events, bracket, units, at, smaller) {
    const rungs = units.map(
        unit => /** @type {RungMoment} */ ({ units: unit, dots: [], cut: null, keep: 0, best: null }),
    );
    /** @type {Map<number, Dot>} */
    const latest = new Map();
    for (const event of events) {
        if (event.number > at) break;
        const rung = rungs[event.rung];
        if (event.bracket !== bracket || !rung) continue;
        rung.cut = event.cut;
        rung.keep = event.keep;
        const before = latest.get(event.trial);
        if (event.arrival !== event.number) {
            if (before) before.look = lookAfter(event);
            continue;
        }
        if (before && (before.look === "running" || before.look === "paused")) before.look = "passed";
        /** @type {Dot} */
        const dot = { event, look: lookAfter(event) };
        latest.set(event.trial, dot);
        rung.dots.push(dot);
        if (better(event.value, rung.best?.event.value ?? null, smaller)) rung.best = dot;
    }
    return rungs;
}

/** @param {RungEvent} event @returns {DotLook} */
function lookAfter({ decision }) {
    return decision === "goes on" || decision === "resumed" ? "running" : decision;
}

/** @param {number | null} value @param {number | null} other @param {boolean} smaller */
function better(value, other, smaller) {
    if (value === null) return false;
    return other === null || (smaller ? value < other : value > other);
}

/**
 * The best dot of a moment: the best of the highest rung that has one.
 * @param {readonly RungMoment[]} rungs
 */
export function leader(rungs) {
    return rungs.findLast(rung => rung.best !== null)?.best ?? null;
}

/**
 * The number of the event before or after `at` that a test takes; null: there is none.
 * @param {readonly RungEvent[]} events
 * @param {number} at
 * @param {1 | -1} direction
 * @param {(event: RungEvent) => boolean} fits
 */
export function nextEvent(events, at, direction, fits) {
    const nearest =
        direction > 0
            ? events.find(event => event.number > at && fits(event))
            : events.findLast(event => event.number < at && fits(event));
    return nearest?.number ?? null;
}

/**
 * What happened, in a sentence.
 * @param {RungEvent} event
 * @param {{ clock: string, units: number, unit: string }} words the time as text; the rung's length and its unit
 */
export function sentence(event, { clock, units, unit }) {
    const rung = `rung ${event.rung + 1} (${number(units)} ${unit})`;
    const standing = `rank ${event.rank} of ${event.of}, value ${number(event.value)}`;
    if (event.decision === "failed") {
        return `At ${clock} trial ${event.trial} failed at ${rung}: it counts as the worst of ${event.of}.`;
    }
    if (event.decision === "top") {
        return `At ${clock} trial ${event.trial} reached the top, ${rung}: ${standing}; it is complete.`;
    }
    const on = event.keep === 1 ? "1 continues" : `${event.keep} continue`;
    const does =
        event.decision === "goes on"
            ? `reached ${rung} and continues`
            : `was ${event.decision} ${event.decision === "resumed" ? "from" : "at"} ${rung}`;
    return `At ${clock} trial ${event.trial} ${does}: ${standing}, cutoff ${number(event.cut)}; ${on}.`;
}

// -- where it is drawn -------------------------------------------------------------------------------------------------

/**
 * @typedef {object} Scene places in pixels
 * @property {{ left: number, right: number, name: string, note: string }[]} columns
 * @property {{ x: number, y: number, dot: Dot, leads: boolean }[]} dots
 * @property {{ column: number, points: [number, number][], now: number }[]} cuts how the cut moved, and where it is
 * @property {{ y: number, text: string }[]} marks of the axis
 * @property {number} top
 * @property {number} bottom
 */

const FAILED_STRIP = 16; // the strip below, where failed ones are
const NARROW_COLUMN = 130; // of a column whose head is short

/**
 * The axis of all values of a bracket: it stays the same during playback. Null: there is no value.
 * @param {readonly RungEvent[]} events
 * @param {number} bracket
 * @param {boolean | undefined} log undefined: where the values ask for it
 * @returns {Axis | null}
 */
export function valueAxis(events, bracket, log) {
    let values = events.filter(event => event.bracket === bracket).map(event => event.value);
    if (log) values = values.filter(value => value !== null && value > 0);
    let low = Infinity;
    let high = -Infinity;
    for (const value of values) {
        if (value === null) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
    }
    if (low > high) return null;
    if (low === high) [low, high] = low > 0 ? [low / 2, high * 2] : [low - 1, high + 1];
    return log === undefined ? numeric("value", low, high) : numeric("value", low, high, log);
}

/**
 * Where everything lies. A dot's place across its column is that of its arrival, so that none moves during playback.
 * @param {readonly RungMoment[]} rungs
 * @param {readonly number[]} totals how many reach each rung in all
 * @param {Axis} axis
 * @param {{ left: number, top: number, right: number, bottom: number }} box
 * @param {string} unit
 * @returns {Scene}
 */
export function sceneOf(rungs, totals, axis, box, unit) {
    const bottom = box.bottom - FAILED_STRIP;
    const wide = (box.right - box.left) / Math.max(1, rungs.length);
    const up = (/** @type {number | null} */ value) => {
        const position = axis.position(value);
        return position === null ? box.bottom - FAILED_STRIP / 2 : bottom - position * (bottom - box.top);
    };
    const first = leader(rungs);
    /** @type {Scene} */
    const scene = { columns: [], dots: [], cuts: [], marks: [], top: box.top, bottom };
    for (const [at, rung] of rungs.entries()) {
        const left = box.left + at * wide + 8;
        const right = box.left + (at + 1) * wide - 8;
        const step = (right - left) / Math.max(1, totals[at] ?? 1);
        const x = (/** @type {number} */ index) => left + (index + 0.5) * step;
        const lookCount = (/** @type {DotLook} */ look) => rung.dots.filter(dot => dot.look === look).length;
        const paused = lookCount("paused");
        const held = [
            paused ? `${paused} paused` : "",
            lookCount("stopped") || !paused ? `${lookCount("stopped")} stopped` : "",
        ];
        const narrow = right - left < NARROW_COLUMN;
        scene.columns.push({
            left,
            right,
            name: narrow ? `rung ${at + 1}` : `rung ${at + 1}: ${number(rung.units)} ${unit}`,
            note: narrow
                ? `${rung.dots.length}`
                : [plural(rung.dots.length, "trial"), ...held].filter(Boolean).join(", "),
        });
        /** @type {[number, number][]} */
        const points = [];
        for (const [index, dot] of rung.dots.entries()) {
            scene.dots.push({ x: x(index), y: up(dot.event.value), dot, leads: dot === first });
            if (dot.event.cut !== null) points.push([x(index), up(dot.event.cut)]);
        }
        if (rung.cut !== null) scene.cuts.push({ column: at, points, now: up(rung.cut) });
    }
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
        const y = bottom - share * (bottom - box.top);
        scene.marks.push({ y, text: tick(Number(axis.value(share).toPrecision(3))) });
    }
    return scene;
}
