/** The plan of a search against its budget and its deadline, in shares of a bar and in words. */
import { ago, count, duration, number, plural } from "./format.js";

/** @import { SearchPlanAnswer as SearchPlan } from "../../types/api.d.ts" */

/**
 * @typedef {object} PlanBar shares of its length, from 0 to 1
 * @property {number} done
 * @property {number | null} forecast
 * @property {number} limit where the budget or the deadline is
 * @property {boolean} over whether the forecast is beyond the limit
 * @property {string} text
 */

/** The slot-hours; null where they have no limit. @param {SearchPlan} plan @returns {PlanBar | null} */
export function hoursBar({ budget, used, forecast }) {
    const limit = budget.slotHours;
    if (limit === null || !(limit > 0)) return null;
    const expected = forecast.slotHours;
    const length = Math.max(limit, used.slotHours, expected ?? 0);
    const words = [`${number(used.slotHours)} of ${number(limit)} slot-hours used`];
    if (expected !== null) words.push(`${number(expected)} expected in the end`);
    return {
        done: used.slotHours / length,
        forecast: expected === null ? null : Math.max(expected, used.slotHours) / length,
        limit: limit / length,
        over: Math.max(expected ?? 0, used.slotHours) > limit,
        text: words.join(", "),
    };
}

/**
 * The time until the deadline; null where there is none.
 * @param {SearchPlan} plan
 * @param {number} started ms since 1970
 * @param {number} now ms since 1970
 * @returns {PlanBar | null}
 */
export function deadlineBar({ budget, forecast }, started, now) {
    const limit = moment(budget.deadline);
    if (limit === null) return null;
    const end = moment(forecast.end);
    const length = Math.max(limit, end ?? 0, now) - started;
    if (!(length > 0)) return null;
    const share = (/** @type {number} */ at) => Math.min(1, Math.max(0, (at - started) / length));
    const words = [`deadline ${ago(limit, now)}`];
    if (end !== null) {
        const early = (limit - end) / 1000;
        words.push(
            `end expected ${ago(end, now)}, ${duration(Math.abs(early))} ${early >= 0 ? "before" : "after"} the deadline`,
        );
    }
    return {
        done: share(now),
        forecast: end === null ? null : share(Math.max(end, now)),
        limit: share(limit),
        over: (end ?? now) > limit,
        text: words.join("; "),
    };
}

/** A time in ms; null for one that is missing or no time. @param {string | null} text */
export function moment(text) {
    const at = text === null ? Number.NaN : Date.parse(text);
    return Number.isFinite(at) ? at : null;
}

/** What the forecast rests on, in words. @param {SearchPlan} plan @param {string} unit of the search */
export function basisOf({ budget, used, forecast, wait, unitSeconds }, unit) {
    const most = budget.maxTrials === null ? "" : ` of at most ${count(budget.maxTrials)}`;
    const trials = forecast.trials === null ? "" : `, ${count(forecast.trials)} expected in the end`;
    return [
        `${plural(used.trials, "trial")}${most}${trials}`,
        unitSeconds === null ? "" : `${duration(unitSeconds)} a unit (${unit})`,
        wait.median === null
            ? "no job has waited in this pool yet"
            : `${duration(wait.median)} in the queue (median of ${plural(wait.jobs, "job")})`,
    ].filter(Boolean);
}
