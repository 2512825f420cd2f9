/** The curves of all trials of an experiment: the best and the marked ones named, the others behind them. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { unitOnAxis } from "../lib/curves.js";
import { count, number, plural, visible } from "../lib/format.js";
import { smoothed } from "../lib/series.js";
import { lookOf, points, sampled, trialWords } from "../lib/trials.js";
import { State, Value } from "../ui/cells.js";
import { Chart, windowHeight } from "../ui/chart.js";
import { ManyLines } from "../ui/many_lines.js";
import { MetricChoice } from "../ui/metric_choice.js";
import { toastError } from "../ui/overlay.js";
import { go, href, place, setQuery } from "../ui/router.js";
import { Waiting } from "../ui/shell.js";
import { CompareLink, Table, useRows } from "../ui/table.js";
import { component, tags } from "../ui/tags.js";

/** @import { Curves, ExperimentBoard } from "../../types/api.d.ts" */
/** @import { ChartData } from "../lib/series.js" */
/** @import { Line, Rung } from "../ui/many_lines.js" */
/** @import { Signal } from "../../vendor/signals/signals.js" */
/** @import { ExperimentView, TrialRow } from "./experiment.js" */

const { a, button, code, div, label, li, option, p, pre, select, span, ul } = tags;

const NAMED = 8; // trials: that few are all named
const MOST_SERIES = 50; // of marked ones; the others are drawn behind
const PLACES = 16; // columns of the table
const LOWEST = 340; // pixels of the chart
const AROUND = 340; // pixels of the window above and below the chart

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { board } = view;
    if (board.metrics.length === 0) return Nothing({ view });
    if (view.trials.length === 1) return OneTrial({ view });
    return board.curves ? AllTrials({ view, curves: board.curves }) : Waiting({});
});

/** Before anything was reported: what it waits for, and how to look further. */
const Nothing = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const head = view.board.experiment;
    const paused = head.state === "PAUSED";
    const failed = head.state === "ERROR";
    const [first] = view.trials;
    const command = paused
        ? `det experiment activate ${head.id}`
        : first
          ? `det trial logs -f ${first["id"]}`
          : `det experiment describe ${head.id}`;
    return div(
        { class: "empty" },
        p(
            null,
            failed
                ? "It failed before it reported a metric."
                : paused
                  ? "It is paused and has reported nothing yet. To let it go on:"
                  : "No metric has been reported yet.",
        ),
        paused || failed ? null : p(null, visible(head.why, 1000)),
        pre(null, code(null, command)),
    );
});

/** All metrics of the only trial, as on its own page. */
const OneTrial = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const module = useSignal(/** @type {typeof import("./trial_metrics.js") | null} */ (null));
    useMemo(() => {
        import("./trial_metrics.js").then(found => {
            module.value = found;
        }, toastError);
    }, []);
    const [row] = view.trials;
    if (!module.value || !row) return Waiting({});
    const head = view.board.experiment;
    const trial = { id: Number(row["id"]), metric: head.metric, steps: Number(row["steps"] ?? 0) };
    const its = { board: { trial, metrics: view.board.metrics, log: [] }, reload: view.reload };
    return div(
        null,
        p({ class: "sentence" }, a({ href: href(`trials/${row["id"]}`) }, `Trial ${row["id"]}`), ", the only one."),
        module.value.Tab({ view: /** @type {any} */ (its) }),
    );
});

const AllTrials = component((/** @type {{ view: ExperimentView, curves: Curves }} */ { view, curves }) => {
    const { board, trials, marks } = view;
    const head = board.experiment;
    const { query } = place.value;
    const log = query.get("log") === "1";
    const logX = query.get("logx") === "1";
    const smooth = Math.min(0.99, Math.max(0, Number(query.get("smooth")) || 0));
    const boxes = useSignal(false);
    const hovered = useSignal(/** @type {Line | null} */ (null));
    const marked = marks.value;
    const rows = useMemo(() => new Map(trials.map(row => [Number(row["id"]), row])), [trials]);
    const lines = useMemo(() => linesOf(curves, rows, board, smooth), [curves, rows, smooth]);
    const front = useMemo(() => inFront(curves, head.bestTrial, marked), [curves, head.bestTrial, marked]);
    const rungs = useMemo(() => rungsOf(board, trials), [board, trials]);
    const many = useMemo(
        () =>
            new ManyLines(
                lines.map(line => (front.has(line.id) ? { ...line, look: /** @type {const} */ ("front") } : line)),
                rungs,
                { log, logX },
            ),
        [lines, front, rungs, log, logX],
    );
    const data = useMemo(
        () => chartData(board, curves, [...front], marked, false),
        [board.experiment.name, curves, front, marked],
    );
    /** @param {number} id */
    const toggle = id => {
        const next = new Set(marks.value);
        if (!next.delete(id)) next.add(id);
        marks.value = next;
    };
    const ways = new Map([
        ["", "batches"],
        ["seconds", "seconds"],
    ]);
    for (const name of [head.timeMetric, curves.xName]) if (name !== "batches") ways.set(name, name);
    return div(
        { class: "curves" },
        Chart(
            {
                data,
                height: Math.max(LOWEST, windowHeight.value - AROUND),
                settings: {
                    log,
                    logX,
                    smooth,
                    table: query.get("table") === "1",
                    set: changes => setQuery(written(changes), { replace: "smooth" in changes }),
                },
                behind: {
                    lines: many,
                    hovered,
                    boxes: boxes.value,
                    onPick: (line, event) => {
                        if (event.ctrlKey || event.metaKey) go(href(`trials/${line.id}`));
                        else toggle(line.id);
                    },
                    onBox: found => {
                        marks.value = new Set([...marks.value, ...found.map(line => line.id)]);
                    },
                },
                whole: () => chartData(board, curves, curves.trials, marked, true),
                table: CurveTable({ curves, rows, metric: curves.metric, marks }),
            },
            MetricChoice({
                metrics: board.metrics,
                group: curves.group,
                name: curves.metric,
                onPick: one =>
                    setQuery({
                        metric: one.name === head.metric && one.group === "validation" ? null : one.name,
                        group: one.group === "validation" ? null : one.group,
                    }),
            }),
            label(
                { class: "chart-tool" },
                "over",
                select(
                    {
                        value: curves.xName === "batches" ? "" : curves.xName,
                        onChange: event => setQuery({ x: event.currentTarget.value || null }),
                    },
                    [...ways].map(([value, text]) => option({ key: value, value }, visible(text, 40))),
                ),
            ),
            button(
                {
                    type: "button",
                    class: "plain",
                    "aria-pressed": boxes.value,
                    title: "Dragging over the curves marks those in the box; else it widens a part, twice a click shows all",
                    onClick: () => {
                        boxes.value = !boxes.value;
                    },
                },
                "Mark a box",
            ),
        ),
        Key({ lines: many.lines }),
        Marked({ view, rows }),
    );
});

/** @param {{ log?: boolean, logX?: boolean, smooth?: number, table?: boolean }} changes */
function written(changes) {
    /** @type {Record<string, string | null>} */
    const query = {};
    if (changes.log !== undefined) query["log"] = changes.log ? "1" : null;
    if (changes.logX !== undefined) query["logx"] = changes.logX ? "1" : null;
    if (changes.smooth !== undefined) query["smooth"] = changes.smooth ? String(changes.smooth) : null;
    if (changes.table !== undefined) query["table"] = changes.table ? "1" : null;
    return query;
}

/**
 * @param {Curves} curves
 * @param {Map<number, TrialRow>} rows
 * @param {ExperimentBoard} board
 * @param {number} smooth
 * @returns {Line[]}
 */
function linesOf(curves, rows, board, smooth) {
    return curves.trials.flatMap((id, at) => {
        const row = rows.get(id);
        if (!row) return []; // newer than the rows
        const { x, y } = points(curves, at);
        const look = lookOf(row, board.experiment);
        const values = smooth ? /** @type {number[]} */ (smoothed(y, smooth)) : y;
        return [{ id, name: trialWords(row, board.experiment), x, y: values, look }];
    });
}

/**
 * Which trials are named: the best, the marked ones, and all where they are few.
 * @param {Curves} curves
 * @param {number | null} best
 * @param {Set<number>} marked
 */
function inFront(curves, best, marked) {
    if (curves.trials.length <= NAMED) return new Set(curves.trials);
    const chosen = curves.trials.filter(id => marked.has(id)).slice(0, MOST_SERIES);
    return new Set([...(best !== null && curves.trials.includes(best) ? [best] : []), ...chosen]);
}

/**
 * @param {ExperimentBoard} board
 * @param {Curves} curves
 * @param {number[]} ids
 * @param {Set<number>} marked
 * @param {boolean} faded whether those that are neither marked nor the best are behind the others
 * @returns {ChartData}
 */
function chartData(board, curves, ids, marked, faded) {
    const head = board.experiment;
    const places = new Map(curves.trials.map((id, at) => [id, at]));
    const few = curves.trials.length <= NAMED;
    const series = ids.map(id => {
        const best = id === head.bestTrial;
        const y = curves.x.map((_, at) => curves.y[places.get(id) ?? -1]?.[at] ?? null);
        return {
            name: `trial ${id}${best ? ", the best" : ""}`,
            y,
            bold: best,
            faded: faded && !few && !best && !marked.has(id),
        };
    });
    return {
        label: `${curves.metric} of ${plural(curves.trials.length, "trial")}`,
        xTitle: curves.xName,
        yTitle: curves.metric,
        x: curves.x,
        // uPlot wants one at least
        series: series.length ? series : [{ name: "none", y: curves.x.map(() => null) }],
        source: `experiment ${head.id}, ${curves.group} ${curves.metric}`,
    };
}

/**
 * @param {ExperimentBoard} board
 * @param {TrialRow[]} trials
 * @returns {Rung[]}
 */
function rungsOf(board, trials) {
    const { curves, experiment } = board;
    const unit = unitOnAxis(board, trials);
    if (!curves || unit === null) return [];
    const compared = curves.metric === experiment.metric && curves.group === "validation";
    /** @type {Map<number, number[]>} */
    const found = new Map();
    for (const rung of board.brackets.flatMap(bracket => bracket.rungs.slice(0, -1))) {
        const cuts = found.get(rung.units) ?? [];
        if (rung.cut !== null && compared) cuts.push(rung.cut);
        found.set(rung.units, cuts);
    }
    return [...found]
        .sort(([one], [other]) => one - other)
        .map(([units, cuts]) => ({
            x: units * unit,
            name: `${visible(experiment.timeMetric, 12)} ${count(units)}${cuts.length === 1 ? `, cut ${number(cuts[0])}` : ""}`,
            cuts,
        }));
}

const Key = component((/** @type {{ lines: Line[] }} */ { lines }) => {
    const sizes = { live: 0, stopped: 0, failed: 0, ended: 0, front: 0 };
    for (const line of lines) sizes[line.look] += 1;
    const words = /** @type {const} */ ([
        ["live", "running, a dot at the end"],
        ["stopped", "stopped by the search"],
        ["failed", "failed, a cross at the end"],
        ["ended", "ended"],
    ]);
    return ul(
        { class: "legend" },
        words
            .filter(([look]) => sizes[look])
            .map(([look, text]) =>
                li({ key: look }, span({ class: `swatch ${look}-line` }), `${count(sizes[look])} ${text}`),
            ),
        li({ key: "how", class: "muted" }, "a click marks the nearest, with Ctrl it opens it"),
    );
});

/** The marked trials: where they lead, and what can be done with them. */
const Marked = component((/** @type {{ view: ExperimentView, rows: Map<number, TrialRow> }} */ { view, rows }) => {
    const { marks } = view;
    const ids = [...marks.value].filter(id => rows.has(id));
    if (ids.length === 0) return null;
    return div(
        { class: "chips", role: "group", "aria-label": "Marked trials" },
        span(null, `${count(ids.length)} marked`),
        ids.slice(0, 12).map(id =>
            span(
                { key: id, class: "chip" },
                a({ href: href(`trials/${id}`) }, `trial ${id}`),
                button(
                    {
                        type: "button",
                        class: "plain",
                        "aria-label": `Remove the mark of trial ${id}`,
                        onClick: () => {
                            marks.value = new Set([...marks.value].filter(other => other !== id));
                        },
                    },
                    "✕",
                ),
            ),
        ),
        ids.length > 12 ? span({ class: "muted" }, `and ${ids.length - 12} more`) : null,
        CompareLink({ kind: "trials", ids }),
        button(
            {
                type: "button",
                onClick: () => {
                    marks.value = new Set();
                },
            },
            "None",
        ),
    );
});

/** What the curves show to those who see them: a row a trial. */
const CurveTable = component(
    (
        /** @type {{ curves: Curves, rows: Map<number, TrialRow>, metric: string, marks: Signal<Set<number>> }} */ {
            curves,
            rows,
            metric,
        },
    ) => {
        const found = useMemo(
            () => curves.trials.map((id, at) => ({ id, at, row: rows.get(id) ?? {} })),
            [curves, rows],
        );
        const list = useRows(found);
        const columns = useMemo(
            () => [
                {
                    key: "id",
                    title: "Trial",
                    width: 90,
                    unsorted: true,
                    cell: (/** @type {{ id: number }} */ one) =>
                        a({ href: href(`trials/${one.id}`), tabIndex: -1 }, `trial ${one.id}`),
                },
                {
                    key: "state",
                    title: "State",
                    width: 110,
                    unsorted: true,
                    cell: (/** @type {{ row: TrialRow }} */ one) => State({ state: String(one.row["state"] ?? "") }),
                },
                {
                    key: "ends",
                    title: "Ends at",
                    width: 90,
                    align: /** @type {const} */ ("right"),
                    unsorted: true,
                    cell: (/** @type {{ at: number }} */ one) => Value({ value: curves.last[one.at] }),
                },
                ...sampled(curves.x, PLACES).map(place => ({
                    key: `at-${place}`,
                    title: number(curves.x[place]),
                    width: 90,
                    align: /** @type {const} */ ("right"),
                    unsorted: true,
                    cell: (/** @type {{ at: number }} */ one) => Value({ value: curves.y[one.at]?.[place] }),
                })),
            ],
            [curves],
        );
        return div(
            { class: "chart-table tall" },
            Table({
                label: `${visible(metric, 60)} of all trials over ${visible(curves.xName, 40)}`,
                columns,
                rows: list,
                rowKey: (/** @type {{ id: number }} */ one) => one.id,
                address: (/** @type {{ id: number }} */ one) => href(`trials/${one.id}`),
            }),
        );
    },
);
