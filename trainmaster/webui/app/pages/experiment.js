/**
 * One experiment: its state and why, its best trial, what it has cost; the rest are views behind tabs, each an address.
 */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { batch, useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { follow } from "../api/live.js";
import { merged } from "../lib/curves.js";
import { visible } from "../lib/format.js";
import { dataAddress, href, place, setQuery } from "../ui/router.js";
import { NotShown, useModule, usePlace, Waiting } from "../ui/shell.js";
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

const MOST_MARKS = 100; // in the address
/** @type {(board: ExperimentBoard) => boolean} */
const always = () => true;
/** @type {(board: ExperimentBoard) => boolean} */
const ofMany = board => board.experiment.trials > 1;
/** @type {(board: ExperimentBoard) => boolean} */
const withRungs = board => board.brackets.length > 0;

/** @type {Record<string, { text: string, load: () => Promise<TabModule>, fits: (board: ExperimentBoard) => boolean }>} */
const TABS = {
    curves: { text: "Curves", load: () => import("./experiment_curves.js"), fits: always },
    trials: { text: "Trials", load: () => import("./experiment_trials.js"), fits: always },
    space: { text: "Space", load: () => import("./experiment_space.js"), fits: ofMany },
    rungs: { text: "Rungs", load: () => import("./experiment_rungs.js"), fits: withRungs },
    story: { text: "Story", load: () => import("./experiment_story.js"), fits: always },
    cost: { text: "Cost", load: () => import("./experiment_cost.js"), fits: always },
    config: { text: "Configuration", load: () => import("./experiment_config.js"), fits: always },
    code: { text: "Code", load: () => import("./experiment_code.js"), fits: always },
    checkpoints: { text: "Checkpoints", load: () => import("./experiment_checkpoints.js"), fits: always },
    notes: { text: "Notes", load: () => import("./experiment_notes.js"), fits: always },
};

export const Page = component(() => {
    const { id = "", tab = "" } = place.value.names;
    const first = place.value.route?.tab;
    const { board, said, reload } = useBoard(id);
    const marks = useMarks();
    const known = board.value;
    const trials = useMemo(() => (known ? objects(known.columns, known.rows) : []), [known?.rows]);
    usePlace([
        { text: "Experiments", to: "experiments" },
        { text: known ? `${id} ${known.experiment.name}` : id, to: `experiments/${id}` },
    ]);
    const shown = useModule(tab, TABS[tab]?.load);
    if (!known) return said.value ? NotShown({ said: said.value, read: reload }) : Waiting({});
    const view = { board: known, trials, marks, reload };
    return div(
        { class: "thing-page" },
        Head({ view }),
        said.value
            ? p({ class: "thing-said said", role: "alert" }, `What you see is older: ${visible(said.value, 300)}`)
            : null,
        nav(
            { class: "tabs", "aria-label": "Views of the experiment" },
            Object.entries(TABS)
                .filter(([name, one]) => name === tab || one.fits(known))
                .map(([name, { text }]) =>
                    a(
                        {
                            key: name,
                            href: href(name === first ? `experiments/${id}` : `experiments/${id}/${name}`, kept()),
                            "aria-current": name === tab ? "page" : undefined,
                        },
                        text,
                    ),
                ),
        ),
        div(
            { class: "tab" },
            TABS[tab] === undefined
                ? p(null, "There is no such view of an experiment.")
                : shown
                  ? shown.Tab({ view, key: tab })
                  : Waiting({}),
        ),
    );
});

/** What goes along from tab to tab. */
function kept() {
    const { query } = place.value;
    return Object.fromEntries(["marks", "metric", "group", "x"].map(name => [name, query.get(name)]));
}

/**
 * The board of an experiment, read again when there is news of it: all of it where the address asks for other curves,
 * else its rows, and of its curves what came since.
 * @param {string} id
 */
function useBoard(id) {
    const board = useSignal(/** @type {ExperimentBoard | null} */ (null));
    const said = useSignal("");
    const address = dataAddress.value;
    const reader = useMemo(() => {
        const path = `api/x1/experiments/${encodeURIComponent(id)}`;
        let round = 0;
        let busy = false;
        let again = false; // there were news while it was being read
        /** @param {() => Promise<ExperimentBoard>} ask */
        const read = async ask => {
            round += 1;
            const mine = round;
            busy = true;
            try {
                const answer = await ask();
                if (mine !== round) return; // another question was asked meanwhile
                batch(() => {
                    board.value = answer;
                    said.value = "";
                });
            } catch (error) {
                if (mine === round) said.value = error instanceof Error ? error.message : String(error);
            } finally {
                if (mine === round) {
                    busy = false;
                    if (again) void news();
                }
            }
        };
        const whole = () => read(() => get(dataAddress.peek()));
        /** @returns {Promise<void>} */
        const news = async () => {
            const before = board.peek();
            const curves = before?.curves;
            again = busy;
            if (busy) return undefined;
            if (!curves) return whole();
            return read(async () => {
                const words = new URLSearchParams({
                    curves: "true",
                    group: curves.group,
                    metric: curves.metric,
                    x: curves.xName,
                    since: String(curves.seq),
                });
                const rows = /** @type {ExperimentBoard} */ (await get(`${path}/board?${words}`));
                const next = rows.curves ? merged(curves, rows.curves) : null;
                return next ? { ...rows, curves: next } : get(dataAddress.peek());
            });
        };
        return { whole, news };
    }, [id]);
    useEffect(() => {
        void reader.whole();
    }, [address]);
    useEffect(() => {
        let begun = false;
        return follow(`experiment:${id}`, () => {
            if (begun) return reader.news();
            // The first hint comes at once: the same question again, whose answer is not sent again if it is the same.
            begun = true;
            return reader.whole();
        });
    }, [id]);
    return { board, said, reload: () => void reader.whole() };
}

/** The marked trials; they stand in the address as long as it stays short. */
function useMarks() {
    const written = place.value.query.get("marks") ?? "";
    const marks = useSignal(/** @type {Set<number>} */ (new Set()));
    const first = useMemo(() => {
        marks.value = read(written);
        return true;
    }, []);
    useEffect(() => {
        // changed elsewhere: by a link, or the browser's back
        if (written !== write(marks.peek()) && first) marks.value = read(written);
    }, [written]);
    useEffect(
        () =>
            marks.subscribe(now => {
                const text = write(now);
                if (text !== (place.peek().query.get("marks") ?? ""))
                    setQuery({ marks: text || null }, { replace: true });
            }),
        [],
    );
    return marks;
}

/** @param {string} text */
function read(text) {
    return new Set(text.split(",").map(Number).filter(Number.isInteger).filter(Boolean).slice(0, MOST_MARKS));
}

/** @param {Set<number>} marks */
function write(marks) {
    return marks.size <= MOST_MARKS ? [...marks].join(",") : "";
}

/**
 * @param {string[]} columns
 * @param {unknown[][]} rows
 * @returns {TrialRow[]}
 */
function objects(columns, rows) {
    return rows.map(row => Object.fromEntries(columns.map((name, at) => [name, row[at]])));
}
