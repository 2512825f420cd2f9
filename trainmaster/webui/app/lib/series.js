/** Series of numbers: smoothing, scales and their ticks, values for a table. */

/** @typedef {(number | null)[]} Values */
/**
 * @typedef {object} Series
 * @property {string} name
 * @property {Values} y one for each x; null where there is none
 * @property {boolean} [faded] behind the others, as of what was stopped
 * @property {boolean} [bold]
 */
/**
 * @typedef {object} ChartData
 * @property {string} label what the chart shows, in words
 * @property {string} xTitle
 * @property {string} yTitle
 * @property {number[]} x rising
 * @property {Series[]} series
 * @property {string} [source] where the data are from, for exported files
 */

/**
 * An exponential moving average, corrected for its beginning (as in Adam): a constant stays what it is.
 * @param {Values} values
 * @param {number} weight from 0, which changes nothing, to below 1
 * @returns {Values}
 */
export function smoothed(values, weight) {
    if (weight <= 0) return values;
    let sum = 0;
    let share = 0;
    return values.map(value => {
        if (value === null || !Number.isFinite(value)) return value;
        sum = sum * weight + value * (1 - weight);
        share = share * weight + (1 - weight);
        return sum / share;
    });
}

/**
 * Values as a logarithmic scale can show them: only those above zero.
 * @param {Values} values
 * @returns {Values}
 */
export function positive(values) {
    return values.map(value => (value !== null && value > 0 ? value : null));
}

/**
 * The smallest and the largest finite value.
 * @param {Iterable<Values | number[]>} lists
 * @returns {[number, number] | null}
 */
export function extent(lists) {
    let low = Infinity;
    let high = -Infinity;
    for (const list of lists) {
        for (const value of list) {
            if (value === null || !Number.isFinite(value)) continue;
            if (value < low) low = value;
            if (value > high) high = value;
        }
    }
    return low <= high ? [low, high] : null;
}

/**
 * Whether an axis counts, as steps and epochs do: there is nothing between two whole numbers.
 * @param {ArrayLike<number | null>} values
 */
export function areIntegers(values) {
    return Array.from(values).every(value => value === null || Number.isInteger(value));
}

/**
 * Round numbers that cover a range: 1, 2 or 5 times a power of ten apart.
 * @param {number} low
 * @param {number} high
 * @param {number} maxTicks
 * @returns {number[]}
 */
export function ticks(low, high, maxTicks) {
    if (!(high > low)) return [low];
    const rough = (high - low) / Math.max(1, maxTicks);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(times => times * power).find(candidate => candidate >= rough) ?? 10 * power;
    const marks = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1)
        marks.push(roundOff(at * step));
    return marks;
}

/**
 * Powers of ten in a range, with 2 and 5 between them where there are few.
 * @param {number} low above zero
 * @param {number} high
 * @returns {number[]}
 */
export function logTicks(low, high) {
    const first = Math.floor(Math.log10(low));
    const last = Math.ceil(Math.log10(high));
    const times = last - first <= 2 ? [1, 2, 5] : [1];
    const marks = [];
    for (let power = first; power <= last; power += 1) {
        for (const factor of times) {
            const value = roundOff(factor * 10 ** power);
            if (value >= low * 0.999 && value <= high * 1.001) marks.push(value);
        }
    }
    return marks;
}

/** Without the last digits' noise, as 0.30000000000000004. @param {number} value */
function roundOff(value) {
    return Number(value.toPrecision(12));
}
