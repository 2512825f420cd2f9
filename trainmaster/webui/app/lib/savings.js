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
    const saved = [...byTrial.values()].reduce((sum, one) => sum + one, 0);
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
    const begun = runs.filter(run => run.started !== null);
    if (begun.length === 0) return { x: [], used: [], without: [] };
    const first = Math.min(...begun.map(run => Number(run.started)));
    const last = Math.max(...begun.map(run => run.ended ?? now));
    const length = Math.max(1, last - first);
    const x = [];
    const used = [];
    const without = [];
    for (let at = 0; at < points; at += 1) {
        const moment = first + (length * at) / (points - 1);
        let here = 0;
        let more = 0;
        for (const run of begun) {
            const start = Number(run.started);
            if (moment <= start) continue;
            const end = run.ended ?? now;
            here += run.slotSeconds * Math.min(1, (moment - start) / Math.max(1, end - start));
            const spared = saving.byTrial.get(run.id) ?? 0;
            if (spared && moment > end) more += Math.min(spared, (moment - end) * run.slots);
        }
        x.push((moment - first) / 3600);
        used.push(here / 3600);
        without.push((here + more) / 3600);
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
 * @property {number} from trials that went to the end, from which this is told
 */

const FEWEST_WHOLE = 5;

/**
 * How good the best of the stopped trials might have become. What those that went to the end had when the other one
 * was stopped, and what they ended with, gives a straight line; its scatter is the doubt.
 * @param {readonly Course[]} courses signed so that smaller is better
 * @param {number} maxTime
 * @returns {Regret | null} null where too few trials went to the end
 */
export function regret(courses, maxTime) {
    const whole = courses.filter(one => !one.stopped && (one.x.at(-1) ?? 0) >= maxTime * 0.99 && bestOf(one) !== null);
    if (whole.length < FEWEST_WHOLE) return null;
    const ends = whole.map(one => Number(bestOf(one)));
    const best = Math.min(...ends);
    /** @type {Regret | null} */
    let found = null;
    for (const one of courses) {
        if (!one.stopped) continue;
        const stoppedAt = one.x.at(-1);
        const value = bestOf(one);
        if (stoppedAt === undefined || value === null) continue;
        const then = whole.map(other => valueAt(other, stoppedAt));
        const line = fitted(then, ends);
        if (line === null) continue;
        // Never worse than what it had already.
        const expected = Math.min(value, line.at(value));
        const chance = line.doubt > 0 ? normal((best - expected) / line.doubt) : expected < best ? 1 : 0;
        if (found === null || chance > found.chance) {
            found = { best, trial: one.id, expected, doubt: line.doubt, chance, from: whole.length };
        }
    }
    return found;
}

/** @param {Course} course */
function bestOf(course) {
    const values = course.y.filter(value => value !== null && Number.isFinite(value));
    return values.length ? Math.min(...values.map(Number)) : null;
}

/** The best value up to a time. @param {Course} course @param {number} time */
function valueAt(course, time) {
    let found = null;
    for (const [at, x] of course.x.entries()) {
        if (x > time) break;
        const value = course.y[at] ?? null;
        if (value !== null && Number.isFinite(value)) found = found === null ? value : Math.min(found, value);
    }
    return found;
}

/**
 * Least squares of pairs whose first may be missing.
 * @param {readonly (number | null)[]} xs
 * @param {readonly number[]} ys
 */
function fitted(xs, ys) {
    const pairs = xs.flatMap((x, at) => (x === null ? [] : [[x, ys[at] ?? 0]]));
    const size = pairs.length;
    if (size < FEWEST_WHOLE) return null;
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
    const rest = pairs.reduce((sum, [x = 0, y = 0]) => sum + (y - at(x)) ** 2, 0);
    return { at, doubt: Math.sqrt(rest / Math.max(1, size - 2)) };
}

/**
 * The normal distribution function (Abramowitz and Stegun, 7.1.26; error below 1.5e-7).
 * @param {number} z
 */
function normal(z) {
    const x = Math.abs(z) / Math.SQRT2;
    const t = 1 / (1 + 0.3275911 * x);
    const poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    const erf = 1 - poly * Math.exp(-x * x);
    return z >= 0 ? (1 + erf) / 2 : (1 - erf) / 2;
}
