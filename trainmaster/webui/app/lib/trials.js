/** What trials of a board look like in charts and tables. */
import { number, plural } from "./format.js";
import { hasEnded, stateLook } from "./states.js";

/** @import { Curves, ExperimentHead } from "../../types/api.d.ts" */
/** @typedef {{ readonly [column: string]: unknown }} Row a trial by the names of the board's columns */
/** @typedef {"ended" | "stopped" | "failed" | "paused" | "live"} TrialLook paused: by the search */

/** Whether the search stopped it before its end. @param {Row} row @param {ExperimentHead} head */
export function stoppedEarly(row, head) {
    return row["stop"] === "searcher" && head.maxTime !== null && Number(row["units"] ?? 0) < head.maxTime;
}

/**
 * The state that is shown of it: one that the search has stopped or paused is told apart from others.
 * @param {Row} row
 * @param {ExperimentHead} head
 */
export function stateOf(row, head) {
    const state = String(row["state"]);
    if (state === "PAUSED" && row["searchPause"] === "paused") return "PAUSED_BY_SEARCH";
    return state === "COMPLETED" && stoppedEarly(row, head) ? "STOPPED" : state;
}

/**
 * @param {Row} row
 * @param {ExperimentHead} head
 * @returns {TrialLook}
 */
export function lookOf(row, head) {
    const state = stateOf(row, head);
    if (state === "ERROR") return "failed";
    if (state === "PAUSED_BY_SEARCH") return "paused";
    if (!hasEnded(String(row["state"]))) return "live";
    return stoppedEarly(row, head) ? "stopped" : "ended";
}

/** Why it is in its state, without the words that are the same for each. @param {Row} row */
export function shortReason(row) {
    const why = String(row["why"] || row["waits"] || "");
    return /^The trial saved its work and left \((.*)\)$/s.exec(why)?.[1] ?? why;
}

/** A trial in a few words. @param {Row} row @param {ExperimentHead} head */
export function trialLabel(row, head) {
    const look = lookOf(row, head);
    const known = {
        failed: "failed",
        paused: "paused by the search",
        stopped: "stopped by the search",
        ended: "ended",
    };
    const word = look === "live" ? stateLook(String(row["state"])).word : known[look];
    const pauses = Number(row["pauses"] ?? 0) - (look === "paused" ? 1 : 0);
    const before = pauses > 0 ? `, paused by the search ${plural(pauses, "time")} before` : "";
    const rung = typeof row["rung"] === "number" ? `, rung ${row["rung"] + 1}` : "";
    const best = typeof row["best"] === "number" ? `, best ${number(row["best"])}` : "";
    return `trial ${row["id"]}: ${word}${rung}${best}${before}`;
}

/**
 * The points of a curve without the gaps of the grid.
 * @param {Curves} curves
 * @param {number} at which row
 */
export function curvePoints(curves, at) {
    /** @type {number[]} */
    const x = [];
    /** @type {number[]} */
    const y = [];
    for (const [index, value] of (curves.y[at] ?? []).entries()) {
        const along = curves.x[index];
        if (value === null || along === undefined) continue;
        x.push(along);
        y.push(value);
    }
    return { x, y };
}

/**
 * As many of the places as a table can show, the first and the last among them.
 * @param {readonly number[]} places
 * @param {number} maxCount
 */
export function sampled(places, maxCount) {
    if (places.length <= maxCount) return places.map((_, at) => at);
    return Array.from({ length: maxCount }, (_, at) => Math.round((at * (places.length - 1)) / (maxCount - 1)));
}
