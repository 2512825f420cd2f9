/** The curves of all trials of an experiment: the best and the marked ones named, the others behind them. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { unitOnAxis } from "../lib/curves.js";
import { count, number, plural, visible } from "../lib/format.js";
import { smoothed } from "../lib/series.js";
import { curvePoints, lookOf, sampled, trialLabel } from "../lib/trials.js";
import { BackgroundLines } from "../ui/background_lines.js";
import { StateLabel, Value } from "../ui/cells.js";
import { Chart, windowHeight } from "../ui/chart.js";
import { MetricPicker } from "../ui/metric_picker.js";
import { useModule } from "../ui/query.js";
import { href, location, navigate, setQuery } from "../ui/router.js";
import { LoadingBar } from "../ui/shell.js";
import { CompareLink, Table, useRows } from "../ui/table.js";
import { component, tags } from "../ui/tags.js";

/** @import { Curves, ExperimentBoard } from "../../types/api.d.ts" */
/** @import { ChartData } from "../lib/series.js" */
/** @import { Line, Rung } from "../ui/background_lines.js" */
/** @import { Signal } from "../../vendor/signals/signals.js" */
/** @import { ExperimentView, TrialRow } from "./experiment.js" */

const { a, button, code, div, label, li, option, p, pre, select, span, ul } = tags;

const MAX_NAMED = 8; // trials: that few are all named
const MAX_SERIES = 50; // of marked ones; the others are drawn behind
const TABLE_COLUMNS = 16; // columns of the table
const MIN_HEIGHT = 340; // pixels of the chart
const CHROME_HEIGHT = 340; // pixels of the window above and below the chart
const PLAN_HEIGHT = 128; // pixels of the plan of a search that has one

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { board } = view;
    if (board.metrics.length === 0) return NoMetrics({ view });
    if (view.trials.length === 1) return SingleTrial({ view });
    return board.curves ? AllTrials({ view, curves: board.curves }) : LoadingBar({});
});

/** Before anything was reported: what it waits for, and how to look further. */
const NoMetrics = component((/** @type {{ view: ExperimentView }} */ { view }) => {
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
                ? "Failed before reporting a metric."
                : paused
                  ? "Paused, and no metrics yet. Resume it:"
                  : "No metrics yet.",
        ),
        paused || failed ? null : p(null, visible(head.why, 1000)),
        pre(null, code(null, command)),
    );
});

/** All metrics of the only trial, as on its own page. */
const SingleTrial = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const metrics = useModule("metrics", () => import("./trial_metrics.js"));
    const [row] = view.trials;
    if (!metrics || !row) return LoadingBar({});
    const head = view.board.experiment;
    const trial = { id: Number(row["id"]), metric: head.metric, steps: Number(row["steps"] ?? 0) };
    const trialView = { board: { trial, metrics: view.board.metrics, log: [] }, reload: view.reload };
    return div(
        null,
        p({ class: "summary" }, a({ href: href(`trials/${row["id"]}`) }, `Trial ${row["id"]}`), ", the only trial."),
        metrics.Tab({ view: /** @type {any} */ (trialView) }),
    );
});

const AllTrials = component((/** @type {{ view: ExperimentView, curves: Curves }} */ { view, curves }) => {
    const { board, trials, marks } = view;
    const head = board.experiment;
    const { query } = location.value;
    const log = query.get("log") === "1";
    const logX = query.get("logx") === "1";
    const smooth = Math.min(0.99, Math.max(0, Number(query.get("smooth")) || 0));
    const boxes = useSignal(false);
    const hovered = useSignal(/** @type {Line | null} */ (null));
    const marked = marks.value;
    const rows = useMemo(() => new Map(trials.map(row => [Number(row["id"]), row])), [trials]);
    const lines = useMemo(() => linesOf(curves, rows, board, smooth), [curves, rows, smooth]);
    const front = useMemo(() => foregroundIds(curves, head.bestTrial, marked), [curves, head.bestTrial, marked]);
    const rungs = useMemo(() => rungsOf(board, trials), [board, trials]);
    const backgroundLines = useMemo(
        () =>
            new BackgroundLines(
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
    const axes = new Map([
        ["", "batches"],
        ["seconds", "seconds"],
    ]);
    for (const name of [head.timeMetric, curves.xName]) if (name !== "batches") axes.set(name, name);
    return div(
        { class: "curves" },
        Chart(
            {
                data,
                height: Math.max(MIN_HEIGHT, windowHeight.value - CHROME_HEIGHT - (head.planned ? PLAN_HEIGHT : 0)),
                settings: {
                    log,
                    logX,
                    smooth,
                    table: query.get("table") === "1",
                    set: changes => setQuery(queryOf(changes), { replace: "smooth" in changes }),
                },
                background: {
                    lines: backgroundLines,
                    hovered,
                    boxes: boxes.value,
                    onPick: (line, event) => {
                        if (event.ctrlKey || event.metaKey) navigate(href(`trials/${line.id}`));
                        else toggle(line.id);
                    },
                    onBox: crossed => {
                        marks.value = new Set([...marks.value, ...crossed.map(line => line.id)]);
                    },
                },
                exportData: () => chartData(board, curves, curves.trials, marked, true),
                table: CurveTable({ curves, rows, metric: curves.metric, marks }),
            },
            MetricPicker({
                metrics: board.metrics,
                group: curves.group,
                name: curves.metric,
                onPick: metric =>
                    setQuery({
                        metric: metric.name === head.metric && metric.group === "validation" ? null : metric.name,
                        group: metric.group === "validation" ? null : metric.group,
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
                    [...axes].map(([value, text]) => option({ key: value, value }, visible(text, 40))),
                ),
            ),
            button(
                {
                    type: "button",
                    class: "plain",
                    "aria-pressed": boxes.value,
                    title: "On: dragging marks the curves in the box. Off: dragging zooms in, a double click zooms out",
                    onClick: () => {
                        boxes.value = !boxes.value;
                    },
                },
                "Mark a box",
            ),
        ),
        CurveLegend({ lines: backgroundLines.lines }),
        MarkedTrials({ view, rows }),
    );
});

/** @param {{ log?: boolean, logX?: boolean, smooth?: number, table?: boolean }} changes */
function queryOf(changes) {
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
        const { x, y } = curvePoints(curves, at);
        const look = lookOf(row, board.experiment);
        const values = smooth ? /** @type {number[]} */ (smoothed(y, smooth)) : y;
        // The last pause of one that is paused is where its line ends.
        const pauses = (curves.pauses[at] ?? []).slice(0, look === "paused" ? -1 : undefined);
        return [{ id, name: trialLabel(row, board.experiment), x, y: values, pauses, look }];
    });
}

/**
 * Which trials are named: the best, the marked ones, and all where they are few.
 * @param {Curves} curves
 * @param {number | null} best
 * @param {Set<number>} marked
 */
function foregroundIds(curves, best, marked) {
    if (curves.trials.length <= MAX_NAMED) return new Set(curves.trials);
    const chosen = curves.trials.filter(id => marked.has(id)).slice(0, MAX_SERIES);
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
    const few = curves.trials.length <= MAX_NAMED;
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
    const cutsByUnits = new Map();
    for (const rung of board.brackets.flatMap(bracket => bracket.rungs.slice(0, -1))) {
        const cuts = cutsByUnits.get(rung.units) ?? [];
        if (rung.cut !== null && compared) cuts.push(rung.cut);
        cutsByUnits.set(rung.units, cuts);
    }
    return [...cutsByUnits]
        .sort(([a], [b]) => a - b)
        .map(([units, cuts]) => ({
            x: units * unit,
            name: `${visible(experiment.timeMetric, 12)} ${count(units)}${cuts.length === 1 ? `, cut ${number(cuts[0])}` : ""}`,
            cuts,
        }));
}

const CurveLegend = component((/** @type {{ lines: Line[] }} */ { lines }) => {
    const sizes = { live: 0, stopped: 0, failed: 0, paused: 0, ended: 0, front: 0 };
    for (const line of lines) sizes[line.look] += 1;
    const resumed = lines.filter(line => line.pauses.length).length;
    const words = /** @type {const} */ ([
        ["live", "running (dot at the end)"],
        ["paused", "paused by the search (two bars at the end)"],
        ["stopped", "stopped by the search"],
        ["failed", "failed (cross at the end)"],
        ["ended", "ended"],
    ]);
    return ul(
        { class: "legend" },
        words
            .filter(([look]) => sizes[look])
            .map(([look, text]) =>
                li({ key: look }, span({ class: `swatch ${look}-line` }), `${count(sizes[look])} ${text}`),
            ),
        resumed
            ? li(
                  { key: "resumed" },
                  span({ class: "pause-ring" }),
                  `${count(resumed)} paused by the search where the ring is, and resumed`,
              )
            : null,
        li({ key: "how", class: "muted" }, "click marks the nearest trial, Ctrl+click opens it"),
    );
});

/** The marked trials: where they lead, and what can be done with them. */
const MarkedTrials = component(
    (/** @type {{ view: ExperimentView, rows: Map<number, TrialRow> }} */ { view, rows }) => {
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
    },
);

/** What the curves show to those who see them: a row a trial. */
const CurveTable = component(
    (
        /** @type {{ curves: Curves, rows: Map<number, TrialRow>, metric: string, marks: Signal<Set<number>> }} */ {
            curves,
            rows,
            metric,
        },
    ) => {
        const entries = useMemo(
            () => curves.trials.map((id, at) => ({ id, at, row: rows.get(id) ?? {} })),
            [curves, rows],
        );
        const list = useRows(entries);
        const columns = useMemo(
            () => [
                {
                    key: "id",
                    title: "Trial",
                    width: 90,
                    unsorted: true,
                    cell: (/** @type {{ id: number }} */ entry) =>
                        a({ href: href(`trials/${entry.id}`), tabIndex: -1 }, `trial ${entry.id}`),
                },
                {
                    key: "state",
                    title: "State",
                    width: 110,
                    unsorted: true,
                    cell: (/** @type {{ row: TrialRow }} */ entry) =>
                        StateLabel({ state: String(entry.row["state"] ?? "") }),
                },
                {
                    key: "ends",
                    title: "Ends at",
                    width: 90,
                    align: /** @type {const} */ ("right"),
                    unsorted: true,
                    cell: (/** @type {{ at: number }} */ entry) => Value({ value: curves.last[entry.at] }),
                },
                ...sampled(curves.x, TABLE_COLUMNS).map(index => ({
                    key: `at-${index}`,
                    title: number(curves.x[index]),
                    width: 90,
                    align: /** @type {const} */ ("right"),
                    unsorted: true,
                    cell: (/** @type {{ at: number }} */ entry) => Value({ value: curves.y[entry.at]?.[index] }),
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
                rowKey: (/** @type {{ id: number }} */ entry) => entry.id,
                address: (/** @type {{ id: number }} */ entry) => href(`trials/${entry.id}`),
            }),
        );
    },
);
