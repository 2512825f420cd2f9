/**
 * One experiment: its state and why, its best trial, what it has cost; the rest are views behind tabs, each an address.
 */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { mergeCurves } from "../lib/curves.js";
import { visible } from "../lib/format.js";
import { hasCopies } from "../lib/lineage.js";
import { LoadError, useModule, useQuery } from "../ui/query.js";
import { dataAddress, href, location, setQuery } from "../ui/router.js";
import { LoadingBar, usePageTitle } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";
import { Head } from "./experiment_head.js";

/** @import { ExperimentBoard } from "../../types/api.d.ts" */
/** @import { ComponentTag } from "../../types/tags.d.ts" */
/** @import { Signal } from "../../vendor/signals/signals.js" */

/** @typedef {{ readonly [column: string]: unknown }} TrialRow a trial by the names of the board's columns */
/**
 * @typedef {object} ExperimentView what a tab gets
 * @property {ExperimentBoard} board
 * @property {TrialRow[]} trials
 * @property {Signal<Set<number>>} marks ids of marked trials; all tabs share them
 * @property {() => void} reload reads all of it again
 */
/** @typedef {{ Tab: ComponentTag<{ view: ExperimentView }> }} TabModule */

const { a, div, nav, p } = tags;

const MAX_MARKS = 100; // in the address
/** @type {(board: ExperimentBoard) => boolean} */
const always = () => true;
/** @type {(board: ExperimentBoard) => boolean} */
const hasManyTrials = board => board.experiment.trials > 1;
/** @type {(board: ExperimentBoard) => boolean} */
const hasCurves = board =>
    board.experiment.trials > 1 && board.experiment.bestTrial !== null && !board.experiment.unmanaged;
/** @type {(board: ExperimentBoard) => boolean} */
const hasRungs = board => board.brackets.length > 0;

/** @type {Record<string, { text: string, load: () => Promise<TabModule>, fits: (board: ExperimentBoard) => boolean }>} */
const TABS = {
    curves: { text: "Curves", load: () => import("./experiment_curves.js"), fits: always },
    trials: { text: "Trials", load: () => import("./experiment_trials.js"), fits: always },
    space: { text: "Space", load: () => import("./experiment_space.js"), fits: hasManyTrials },
    rungs: { text: "Rungs", load: () => import("./experiment_rungs.js"), fits: hasRungs },
    lineage: { text: "Lineage", load: () => import("./experiment_lineage.js"), fits: hasCopies },
    story: { text: "Story", load: () => import("./experiment_story.js"), fits: always },
    cost: { text: "Cost", load: () => import("./experiment_cost.js"), fits: always },
    "what-if": { text: "What if", load: () => import("./experiment_what_if.js"), fits: hasCurves },
    config: { text: "Configuration", load: () => import("./experiment_config.js"), fits: always },
    code: { text: "Code", load: () => import("./experiment_code.js"), fits: always },
    checkpoints: { text: "Checkpoints", load: () => import("./experiment_checkpoints.js"), fits: always },
    notes: { text: "Notes", load: () => import("./experiment_notes.js"), fits: always },
};

export const Page = component(() => {
    const { id = "", tab = "" } = location.value.params;
    const first = location.value.route?.tab;
    const { data, error, refetch } = useQuery(dataAddress.value, { topic: `experiment:${id}`, refresh: withNewCurves });
    const board = /** @type {ExperimentBoard | null} */ (data);
    const marks = useMarks();
    const trials = useMemo(() => (board ? trialRows(board.columns, board.rows) : []), [board?.rows]);
    usePageTitle([
        { text: "Experiments", to: "experiments" },
        { text: board ? `${id} ${board.experiment.name}` : id, to: `experiments/${id}` },
    ]);
    const tabModule = useModule(tab, TABS[tab]?.load);
    const planned = board?.experiment.planned ?? false;
    const planModule = useModule(`plan ${planned}`, planned ? () => import("./experiment_plan.js") : undefined);
    if (!board) return error ? LoadError({ error, retry: refetch }) : LoadingBar({});
    const view = { board, trials, marks, reload: () => void refetch() };
    return div(
        { class: "detail-page" },
        Head({ view }),
        error
            ? p({ class: "stale-note error-text", role: "alert" }, `This data is stale: ${visible(error, 300)}`)
            : null,
        // Its place is kept while it is loaded, so that the tabs stay where they are.
        planned ? div({ class: "plan" }, planModule ? planModule.Plan({ view }) : null) : null,
        nav(
            { class: "tabs", "aria-label": "Views of the experiment" },
            Object.entries(TABS)
                .filter(([name, tabSpec]) => name === tab || tabSpec.fits(board))
                .map(([name, { text }]) =>
                    a(
                        {
                            key: name,
                            href: href(
                                name === first ? `experiments/${id}` : `experiments/${id}/${name}`,
                                sharedQuery(),
                            ),
                            "aria-current": name === tab ? "page" : undefined,
                        },
                        text,
                    ),
                ),
        ),
        div(
            { class: "tab" },
            TABS[tab] === undefined
                ? p(null, "An experiment has no such tab.")
                : tabModule
                  ? tabModule.Tab({ view, key: tab })
                  : LoadingBar({}),
        ),
    );
});

/** What goes along from tab to tab. */
function sharedQuery() {
    const { query } = location.value;
    return Object.fromEntries(["marks", "metric", "group", "x"].map(name => [name, query.get(name)]));
}

/**
 * Load the rows of the board, and of its curves only the new points.
 * @param {ExperimentBoard} board
 * @returns {Promise<ExperimentBoard>}
 */
async function withNewCurves(board) {
    const { curves, experiment } = board;
    if (!curves) return get(dataAddress.peek());
    const query = new URLSearchParams({
        curves: "true",
        group: curves.group,
        metric: curves.metric,
        x: curves.xName,
        since: String(curves.seq),
    });
    /** @type {ExperimentBoard} */
    const answer = await get(`api/x1/experiments/${experiment.id}/board?${query}`);
    const merged = answer.curves ? mergeCurves(curves, answer.curves) : null;
    return merged ? { ...answer, curves: merged } : get(dataAddress.peek());
}

/** The marked trials; they stand in the address as long as it stays short. */
function useMarks() {
    const written = location.value.query.get("marks") ?? "";
    const marks = useSignal(/** @type {Set<number>} */ (new Set()));
    const first = useMemo(() => {
        marks.value = parseMarks(written);
        return true;
    }, []);
    useEffect(() => {
        // changed elsewhere: by a link, or the browser's back
        if (written !== formatMarks(marks.peek()) && first) marks.value = parseMarks(written);
    }, [written]);
    useEffect(
        () =>
            marks.subscribe(now => {
                const text = formatMarks(now);
                if (text !== (location.peek().query.get("marks") ?? ""))
                    setQuery({ marks: text || null }, { replace: true });
            }),
        [],
    );
    return marks;
}

/** @param {string} text */
function parseMarks(text) {
    return new Set(text.split(",").map(Number).filter(Number.isInteger).filter(Boolean).slice(0, MAX_MARKS));
}

/** @param {Set<number>} marks */
function formatMarks(marks) {
    return marks.size <= MAX_MARKS ? [...marks].join(",") : "";
}

/**
 * @param {string[]} columns
 * @param {unknown[][]} rows
 * @returns {TrialRow[]}
 */
function trialRows(columns, rows) {
    return rows.map(row => Object.fromEntries(columns.map((name, at) => [name, row[at]])));
}
