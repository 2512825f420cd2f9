/**
 * What stopping trials early has saved, and what it may have cost: slot-seconds that the stopped ones would have used
 * further at their own speed, and how good the best of them might have become.
 */

/**
 * @typedef {object} Run a trial
 * @property {number} id
 * @property {boolean} stopped by the search, before the end
 * @property {number} units that it trained
 * @property {number | null} secondsPerUnit
 * @property {number} slots
 * @property {number} slotSeconds used
 * @property {number | null} started seconds since 1970
 * @property {number | null} ended
 */
/**
 * @typedef {object} Saving
 * @property {number} used slot-seconds of all
 * @property {number} saved slot-seconds
 * @property {number} stopped how many trials
 * @property {number} unknown stopped ones whose speed is not known: they count as nothing saved
 * @property {Map<number, number>} byTrial slot-seconds saved
 */

/**
 * @param {readonly Run[]} runs
 * @param {number} maxTime units that a trial trains which is not stopped
 * @returns {Saving}
 */
export function savings(runs, maxTime) {
    /** @type {Map<number, number>} */
    const byTrial = new Map();
    let unknown = 0;
    for (const run of runs) {
        if (!run.stopped || run.units >= maxTime) continue;
        if (run.secondsPerUnit === null) unknown += 1;
        else byTrial.set(run.id, (maxTime - run.units) * run.secondsPerUnit * run.slots);
    }
    const used = runs.reduce((sum, run) => sum + run.slotSeconds, 0);
    const saved = [...byTrial.values()].reduce((sum, seconds) => sum + seconds, 0);
    return { used, saved, stopped: byTrial.size + unknown, unknown, byTrial };
}

/**
 * The slot-hours over time: what was used, and what would have been by then without stopping. A trial's use is spread
 * evenly over its time; what it was spared follows at the same rate.
 * @param {readonly Run[]} runs
 * @param {Saving} saving
 * @param {number} now seconds since 1970
 * @param {number} [points]
 * @returns {{ x: number[], used: number[], without: number[] }} x in hours since the first start
 */
export function costCurves(runs, saving, now, points = 120) {
    const started = runs.filter(run => run.started !== null);
    if (started.length === 0) return { x: [], used: [], without: [] };
    const first = Math.min(...started.map(run => Number(run.started)));
    const last = Math.max(...started.map(run => run.ended ?? now));
    const length = Math.max(1, last - first);
    const x = [];
    const used = [];
    const without = [];
    for (let at = 0; at < points; at += 1) {
        const moment = first + (length * at) / (points - 1);
        let usedSoFar = 0;
        let savedSoFar = 0;
        for (const run of started) {
            const start = Number(run.started);
            if (moment <= start) continue;
            const end = run.ended ?? now;
            usedSoFar += run.slotSeconds * Math.min(1, (moment - start) / Math.max(1, end - start));
            const spared = saving.byTrial.get(run.id) ?? 0;
            if (spared && moment > end) savedSoFar += Math.min(spared, (moment - end) * run.slots);
        }
        x.push((moment - first) / 3600);
        used.push(usedSoFar / 3600);
        without.push((usedSoFar + savedSoFar) / 3600);
    }
    return { x, used, without };
}

/**
 * @typedef {object} Course values of a trial over the units that it trained
 * @property {number} id
 * @property {boolean} stopped
 * @property {number[]} x rising
 * @property {(number | null)[]} y
 */
/**
 * @typedef {object} Regret
 * @property {number} best value that was found, signed so that smaller is better
 * @property {number} trial the stopped one that would most likely have become best
 * @property {number} expected its value at the end
 * @property {number} doubt standard deviation of that
 * @property {number} chance that it would have been better than the best one
 * @property {number} from trials that went to the end, from which this is estimated
 */

const MIN_COMPLETE = 5;

/**
 * How good the best of the stopped trials might have become. What those that went to the end had when the other one
 * was stopped, and what they ended with, gives a straight line; its scatter is the doubt.
 * @param {readonly Course[]} courses signed so that smaller is better
 * @param {number} maxTime
 * @returns {Regret | null} null where too few trials went to the end
 */
export function regret(courses, maxTime) {
    const complete = courses.filter(
        course => !course.stopped && (course.x.at(-1) ?? 0) >= maxTime * 0.99 && bestOf(course) !== null,
    );
    if (complete.length < MIN_COMPLETE) return null;
    const ends = complete.map(course => Number(bestOf(course)));
    const best = Math.min(...ends);
    /** @type {Regret | null} */
    let result = null;
    for (const course of courses) {
        if (!course.stopped) continue;
        const stoppedAt = course.x.at(-1);
        const value = bestOf(course);
        if (stoppedAt === undefined || value === null) continue;
        const valuesThen = complete.map(other => valueAt(other, stoppedAt));
        const line = fitLine(valuesThen, ends);
        if (line === null) continue;
        // Never worse than what it had already.
        const expected = Math.min(value, line.at(value));
        const chance = line.doubt > 0 ? normalCdf((best - expected) / line.doubt) : expected < best ? 1 : 0;
        if (result === null || chance > result.chance) {
            result = { best, trial: course.id, expected, doubt: line.doubt, chance, from: complete.length };
        }
    }
    return result;
}

/** @param {Course} course */
function bestOf(course) {
    const values = course.y.filter(value => value !== null && Number.isFinite(value));
    return values.length ? Math.min(...values.map(Number)) : null;
}

/** The best value up to a time. @param {Course} course @param {number} time */
function valueAt(course, time) {
    let best = null;
    for (const [at, x] of course.x.entries()) {
        if (x > time) break;
        const value = course.y[at] ?? null;
        if (value !== null && Number.isFinite(value)) best = best === null ? value : Math.min(best, value);
    }
    return best;
}

/**
 * Least squares of pairs whose first may be missing.
 * @param {readonly (number | null)[]} xs
 * @param {readonly number[]} ys
 */
function fitLine(xs, ys) {
    const pairs = xs.flatMap((x, at) => (x === null ? [] : [[x, ys[at] ?? 0]]));
    const size = pairs.length;
    if (size < MIN_COMPLETE) return null;
    const meanX = pairs.reduce((sum, pair) => sum + (pair[0] ?? 0), 0) / size;
    const meanY = pairs.reduce((sum, pair) => sum + (pair[1] ?? 0), 0) / size;
    let over = 0;
    let under = 0;
    for (const [x = 0, y = 0] of pairs) {
        over += (x - meanX) * (y - meanY);
        under += (x - meanX) ** 2;
    }
    const slope = under > 0 ? over / under : 0;
    const at = (/** @type {number} */ x) => meanY + slope * (x - meanX);
    const residuals = pairs.reduce((sum, [x = 0, y = 0]) => sum + (y - at(x)) ** 2, 0);
    return { at, doubt: Math.sqrt(residuals / Math.max(1, size - 2)) };
}

/**
 * The normal distribution function (Abramowitz and Stegun, 7.1.26; error below 1.5e-7).
 * @param {number} z
 */
function normalCdf(z) {
    const x = Math.abs(z) / Math.SQRT2;
    const t = 1 / (1 + 0.3275911 * x);
    const poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    const erf = 1 - poly * Math.exp(-x * x);
    return z >= 0 ? (1 + erf) / 2 : (1 - erf) / 2;
}
