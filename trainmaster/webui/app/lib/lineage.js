/** Copies of trials: which began from a checkpoint of which other, with what changed, in lanes as they are drawn. */
import { number, visible } from "./format.js";

/** @typedef {{ readonly [column: string]: unknown }} Row a trial by the names of the board's columns */
/** @typedef {{ name: string, before: unknown, after: unknown }} Change of a hyperparameter */
/**
 * @typedef {object} Lane
 * @property {number} id
 * @property {Row} row
 * @property {Lane | null} parent the one that it is a copy of; null where that is unknown
 * @property {number} at number of the lane, from 0
 * @property {number} from where it begins on the axis
 * @property {number} to
 * @property {Change[]} changes against the parent
 */

const MAX_LANES = 300;

/** Whether any trial is a copy of another. @param {{ columns: string[], rows: unknown[][] }} board */
export function hasCopies({ columns, rows }) {
    const at = columns.indexOf("parent");
    return rows.some(row => typeof row[at] === "number");
}

/**
 * The lanes, each copy below what it is a copy of. Where there are too many, those without copies are left out first.
 * @param {readonly Row[]} rows
 * @param {readonly string[]} names of the hyperparameters
 * @param {{ units: boolean, now: number }} axis whether it is of units of the search, or of hours since the first start
 * @returns {{ lanes: Lane[], left: number }} and how many trials are left out
 */
export function lanesOf(rows, names, { units, now }) {
    const byId = new Map(rows.map(row => [Number(row["id"]), row]));
    /** @type {Map<number, Row[]>} */
    const copies = new Map();
    /** @type {Row[]} */
    const roots = [];
    for (const row of byId.values()) {
        const parent = row["parent"];
        if (typeof parent === "number" && byId.has(parent) && parent !== row["id"]) {
            copies.set(parent, [...(copies.get(parent) ?? []), row]);
        } else roots.push(row);
    }
    if (byId.size > MAX_LANES) roots.sort((a, b) => Number(isAlone(a)) - Number(isAlone(b)));
    /** @param {Row} row */
    function isAlone(row) {
        return !copies.has(Number(row["id"]));
    }
    const first = Math.min(...rows.map(row => Number(row["started"] ?? now)));
    /** @type {Map<number, Lane>} */
    const lanes = new Map();
    const due = [...roots].reverse();
    for (let row = due.pop(); row && lanes.size < MAX_LANES; row = due.pop()) {
        const id = Number(row["id"]);
        if (lanes.has(id)) continue;
        const parent = lanes.get(Number(row["parent"])) ?? null;
        const [from, to] = units ? unitsOf(row, parent) : hoursOf(row, first, now);
        const changes = parent ? changesOf(parent.row, row, names) : [];
        lanes.set(id, { id, row, parent, at: lanes.size, from, to: Math.max(from, to), changes });
        due.push(...(copies.get(id) ?? []).reverse());
    }
    return { lanes: [...lanes.values()], left: byId.size - lanes.size };
}

/** @param {Row} row @param {Lane | null} parent @returns {[number, number]} */
function unitsOf(row, parent) {
    const to = Number(row["units"] ?? 0);
    if (!parent) return [0, to];
    const first = row["unitsFrom"];
    return [typeof first === "number" ? first : parent.to, to];
}

/** @param {Row} row @param {number} first @param {number} now @returns {[number, number]} */
function hoursOf(row, first, now) {
    const started = Number(row["started"] ?? now);
    return [(started - first) / 3600, (Number(row["ended"] ?? now) - first) / 3600];
}

/**
 * The hyperparameters that differ.
 * @param {Row} before
 * @param {Row} after
 * @param {readonly string[]} names
 * @returns {Change[]}
 */
export function changesOf(before, after, names) {
    return names.flatMap(name => {
        const [old, now] = [before[`hp.${name}`], after[`hp.${name}`]];
        return JSON.stringify(old) === JSON.stringify(now) ? [] : [{ name, before: old, after: now }];
    });
}

/** Changes in words. @param {readonly Change[]} changes */
export function changeText(changes) {
    if (changes.length === 0) return "the same hyperparameters";
    const shown = changes
        .slice(0, 20)
        .map(change => `${visible(change.name, 60)} ${text(change.before)} → ${text(change.after)}`);
    return shown.join(", ") + (changes.length > 20 ? ` and ${changes.length - 20} more` : "");
}

/** @param {unknown} value */
function text(value) {
    if (typeof value === "number") return number(value);
    return value === null || value === undefined
        ? "–"
        : visible(typeof value === "string" ? value : JSON.stringify(value), 60);
}

/**
 * A trial and those that it descends from, the first of them first.
 * @param {readonly Lane[]} lanes
 * @param {number | null} id
 * @returns {Lane[]}
 */
export function descentOf(lanes, id) {
    /** @type {Lane[]} */
    const found = [];
    for (let lane = lanes.find(each => each.id === id) ?? null; lane; lane = lane.parent) found.unshift(lane);
    return found;
}
