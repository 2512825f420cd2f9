/** Lines of a log as they are read: filters in addresses, times, and the matches of a search. */
import { duration, exact } from "./format.js";

/** @import { Piece } from "./ansi.js" */

/** Levels from which lines are shown, in the order of their weight. */
export const LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];

/** Parameters of the page's address that select lines, and what they are called in the API. */
const LISTS = /** @type {const} */ ([
    ["rank", "rankIds"],
    ["node", "agentIds"],
    ["job", "allocationIds"],
    ["stream", "stdtypes"],
]);
export const FILTERS = ["level", ...LISTS.map(([name]) => name), "since", "until"];

/**
 * The filter of an address, as the API takes it.
 * @param {URLSearchParams} query of the page's address
 */
function filterOf(query) {
    const filter = new URLSearchParams();
    const lowest = LEVELS.indexOf((query.get("level") ?? "").toUpperCase());
    if (lowest > 0) for (const level of LEVELS.slice(lowest)) filter.append("levels", level);
    for (const [name, called] of LISTS) for (const value of listParam(query, name)) filter.append(called, value);
    const since = query.get("since");
    const until = query.get("until");
    if (since) filter.set("timestampAfter", since);
    if (until) filter.set("timestampBefore", until);
    return filter;
}

/**
 * The search of an address, as the API takes it; empty without one.
 * @param {URLSearchParams} query
 */
function searchOf(query) {
    const search = new URLSearchParams();
    const text = query.get("q");
    if (!text) return search;
    search.set("searchText", text);
    if (query.get("regex")) search.set("enableRegex", "true");
    if (query.get("only")) search.set("onlyMatches", "true");
    return search;
}

/**
 * Filter and search of an address, as texts that are alike where the question is.
 * @param {string | URLSearchParams} query
 */
export function logQueryOf(query) {
    const words = new URLSearchParams(query);
    return { filter: filterOf(words).toString(), search: searchOf(words).toString() };
}

/**
 * @param {URLSearchParams} query
 * @param {string} name
 */
export function listParam(query, name) {
    return (query.get(name) ?? "").split(",").filter(Boolean);
}

/**
 * @param {readonly string[]} list
 * @param {string} value is taken out if it is there
 */
export function toggled(list, value) {
    return list.includes(value) ? list.filter(item => item !== value) : [...list, value];
}

/** @typedef {"" | "ago" | "start" | "none"} Times */

/**
 * The time of a line: of the day, ago, or since the log's beginning.
 * @param {number} at seconds since 1970
 * @param {Times} mode
 * @param {number} began seconds since 1970
 * @param {number} now seconds since 1970
 */
export function stamp(at, mode, began, now) {
    if (mode === "none") return "";
    if (mode === "ago") return now - at < 1 ? "now" : `−${duration(now - at)}`;
    if (mode === "start") return `+${clock(at - began)}`;
    return exact(at * 1000).slice(5, 19);
}

/** @param {number} seconds */
function clock(seconds) {
    const positive = Math.max(0, seconds);
    const two = (/** @type {number} */ n) => String(Math.floor(n)).padStart(2, "0");
    return `${Math.floor(positive / 3600)}:${two((positive % 3600) / 60)}:${two(positive % 60)}.${Math.floor((positive * 10) % 10)}`;
}

/**
 * Where a text occurs in a line, in whatever case.
 * @param {string} line
 * @param {string} term
 * @returns {[number, number][]} beginnings and ends
 */
export function matchesIn(line, term) {
    const low = line.toLowerCase();
    const text = term.toLowerCase();
    /** @type {[number, number][]} */
    const ranges = [];
    if (!text || low.length !== line.length) return ranges;
    for (let at = low.indexOf(text); at >= 0 && ranges.length < 100; at = low.indexOf(text, at + text.length))
        ranges.push([at, at + text.length]);
    return ranges;
}

/**
 * The pieces of a line, cut where a place begins or ends.
 * @param {readonly Piece[]} pieces
 * @param {readonly [number, number][]} places
 * @returns {(Piece & { isMatch: boolean })[]}
 */
export function splitAtMatches(pieces, places) {
    /** @type {(Piece & { isMatch: boolean })[]} */
    const result = [];
    let start = 0;
    let next = 0;
    for (const { text, style } of pieces) {
        let from = 0;
        while (from < text.length) {
            while (next < places.length && (places[next]?.[1] ?? 0) <= start + from) next += 1;
            const [begin, end] = places[next] ?? [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
            const isMatch = begin <= start + from;
            const to = Math.min(text.length, (isMatch ? end : begin) - start);
            result.push({ text: text.slice(from, to), style, isMatch });
            from = to;
        }
        start += text.length;
    }
    return result;
}
