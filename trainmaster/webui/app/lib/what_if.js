/** What another searcher would have found: the request that a form means, and the simulated runs beside the recorded. */

/** @import { SearchRun, SearchSimulation } from "../../types/api.d.ts" */
/** @typedef {SearchSimulation & { recorded: SearchRun }} Replay of an experiment, which has a run of its own */
/** @typedef {{ searcher: string, settings: string, workers: string, delay: string, spread: string, deaths: string, seeds: string }} WhatIfForm */
/** @typedef {{ searcher: { [key: string]: unknown }, workers: number | null, seeds: number, delay: number, delay_spread: number, deaths: number }} WhatIfRequest */

/** @type {WhatIfForm} */
export const EMPTY_FORM = { searcher: "", settings: "", workers: "", delay: "", spread: "", deaths: "", seeds: "" };
const DEFAULT_SEEDS = 5;
const POINTS = 600; // of a curve

/**
 * The request, or the sentence on the first field that cannot be read. What is no number of the right size, the master
 * refuses.
 * @param {WhatIfForm} form
 * @returns {{ request: WhatIfRequest } | { sentence: string }}
 */
export function requestOf(form) {
    /** @type {{ [key: string]: unknown }} */
    const searcher = form.searcher.trim() ? { name: form.searcher.trim() } : {};
    for (const word of form.settings.split(/\s+/).filter(Boolean)) {
        const equals = word.indexOf("=");
        if (equals < 1)
            return { sentence: `Settings takes KEY=VALUE, such as divisor=3, not ${JSON.stringify(word)}.` };
        Object.defineProperty(searcher, word.slice(0, equals), {
            value: settingOf(word.slice(equals + 1)),
            enumerable: true,
        });
    }
    if (Object.keys(searcher).length === 0) return { sentence: "Name a searcher, or a setting that is to be another." };
    const fields = /** @type {const} */ ([
        ["workers", "Workers"],
        ["seeds", "Simulations"],
        ["delay", "Queue delay"],
        ["spread", "Spread"],
        ["deaths", "Jobs that die"],
    ]);
    for (const [key, title] of fields) {
        const text = form[key].trim();
        if (text && !Number.isFinite(Number(text))) {
            return { sentence: `${title} takes a number, not ${JSON.stringify(form[key])}.` };
        }
    }
    return {
        request: {
            searcher,
            workers: form.workers.trim() ? Number(form.workers) : null,
            seeds: form.seeds.trim() ? Number(form.seeds) : DEFAULT_SEEDS,
            delay: Number(form.delay),
            delay_spread: Number(form.spread),
            deaths: Number(form.deaths),
        },
    };
}

/** @param {string} text @returns {unknown} */
function settingOf(text) {
    try {
        return JSON.parse(text);
    } catch {
        return text; // as a word
    }
}

/**
 * The command that asks the same.
 * @param {number} experiment
 * @param {WhatIfRequest} request
 */
export function argumentsOf(experiment, request) {
    const { name, ...settings } = request.searcher;
    return [
        ...["det", "search", "what-if", String(experiment)],
        ...(name === undefined ? [] : ["--searcher", String(name)]),
        ...Object.entries(settings).flatMap(([key, value]) => [
            "--set",
            `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`,
        ]),
        ...(request.workers === null ? [] : ["--workers", String(request.workers)]),
        ...(request.delay ? ["--queue-delay", `${request.delay}:${request.delay_spread}`] : []),
        ...(request.deaths ? ["--deaths", String(request.deaths)] : []),
        ...["--seeds", String(request.seeds)],
    ];
}

/** The best value of a run; null where it found none. @param {SearchRun} run */
export function bestOf(run) {
    return run.bests.at(-1)?.[1] ?? null;
}

/**
 * Seconds until a run was as good as a value; null: it never was.
 * @param {SearchRun} run
 * @param {number | null} target
 * @param {boolean} smaller whether smaller values are better
 */
export function secondsTo(run, target, smaller) {
    if (target === null) return null;
    const found = run.bests.find(([, value = Number.NaN]) => (smaller ? value <= target : value >= target));
    return found?.[0] ?? null;
}

/**
 * The middle of values; null where half of them are missing.
 * @param {readonly (number | null)[]} values
 */
export function median(values) {
    const known = values.filter(value => value !== null).sort((a, b) => a - b);
    if (known.length * 2 < values.length || known.length === 0) return null;
    const half = Math.floor(known.length / 2);
    const upper = known[half] ?? 0;
    return known.length % 2 ? upper : ((known[half - 1] ?? upper) + upper) / 2;
}

/**
 * The best value so far of each run over time, on one axis.
 * @param {readonly SearchRun[]} runs
 * @returns {{ x: number[], y: (number | null)[][] }} seconds; null before the first value of a run and behind its end
 */
export function bestCurves(runs) {
    const last = Math.max(...runs.map(run => run.seconds), ...runs.map(run => run.bests.at(-1)?.[0] ?? 0), 1);
    const even = Array.from({ length: POINTS + 1 }, (_, at) => (last * at) / POINTS);
    // Just before each improvement too, so that a step is one.
    const steps = runs.length <= 3 ? runs.flatMap(run => run.bests.flatMap(([at = 0]) => [at - last * 1e-6, at])) : [];
    const x = [...new Set([...even, ...steps.filter(at => at > 0)])].sort((a, b) => a - b);
    return { x, y: runs.map(run => curveOf(run, x)) };
}

/** @param {SearchRun} run @param {number[]} x @returns {(number | null)[]} */
function curveOf(run, x) {
    const end = Math.max(run.seconds, run.bests.at(-1)?.[0] ?? 0);
    let place = 0;
    /** @type {number | null} */
    let value = null;
    return x.map(at => {
        while (place < run.bests.length && Number(run.bests[place]?.[0]) <= at) {
            value = run.bests[place]?.[1] ?? null;
            place += 1;
        }
        return at > end ? null : value;
    });
}

/**
 * The median of curves; a run that has ended keeps its value.
 * @param {readonly (readonly (number | null)[])[]} curves
 * @returns {(number | null)[]}
 */
export function medianCurve(curves) {
    const length = curves[0]?.length ?? 0;
    const held = curves.map(curve => {
        /** @type {number | null} */
        let value = null;
        return Array.from({ length }, (_, at) => (value = curve[at] ?? value));
    });
    const end = Math.max(...curves.map(curve => curve.findLastIndex(value => value !== null)));
    return Array.from({ length }, (_, at) => (at <= end ? median(held.map(values => values[at] ?? null)) : null));
}

/**
 * Of the simulated runs beside the recorded one: medians.
 * @param {Replay} answer
 */
export function outcome({ runs, recorded, smallerIsBetter }) {
    const target = bestOf(recorded);
    const reached = runs.map(run => secondsTo(run, target, smallerIsBetter));
    return {
        target,
        best: median(runs.map(bestOf)),
        seconds: median(runs.map(run => run.seconds)),
        slotSeconds: median(runs.map(run => run.slotSeconds)),
        trials: median(runs.map(run => run.trials)),
        reached: median(reached),
        never: reached.filter(seconds => seconds === null).length,
    };
}
