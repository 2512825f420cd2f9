/** The experiment's recorded curves, replayed through another searcher. */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { send } from "../api/http.js";
import { shellWord } from "../lib/files.js";
import { count, duration, number, plural, visible } from "../lib/format.js";
import {
    argumentsOf,
    bestCurves,
    bestOf,
    EMPTY_FORM,
    medianCurve,
    outcome,
    requestOf,
    secondsTo,
} from "../lib/what_if.js";
import { Value } from "../ui/cells.js";
import { Chart } from "../ui/chart.js";
import { copyText } from "../ui/overlay.js";
import { useLoad } from "../ui/query.js";
import { location, setQuery } from "../ui/router.js";
import { LoadingBar } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { SearchRun } from "../../types/api.d.ts" */
/** @import { Replay, WhatIfForm, WhatIfRequest } from "../lib/what_if.js" */
/** @import { ExperimentView } from "./experiment.js" */

const { button, caption, datalist, div, form, h2, input, label, option, p, section, table, tbody, td, th, thead, tr } =
    tags;

const SEARCHERS = ["auto", "asha", "adaptive_asha", "async_halving", "median_stopping", "pbt", "random"];
const SHOWN_RUNS = 20; // curves of single simulations
const HOUR = 3600;
const FIELDS = /** @type {const} */ ([
    { key: "searcher", title: "Searcher", hint: "the experiment's own" },
    { key: "settings", title: "Settings", hint: "divisor=3 max_trials=100" },
    { key: "workers", title: "Workers", hint: "its own number" },
    { key: "delay", title: "Queue delay (s)", hint: "0" },
    { key: "spread", title: "Its spread", hint: "0" },
    { key: "deaths", title: "Jobs that die", hint: "0 to 0.9" },
    { key: "seeds", title: "Simulations", hint: "5" },
]);

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id } = view.board.experiment;
    const { query } = location.value;
    const asked = useMemo(() => formOf(query), [query]);
    const parsed = useMemo(() => requestOf(asked), [asked]);
    const request = "request" in parsed ? parsed.request : null;
    const key = request ? JSON.stringify([id, request]) : "";
    const busy = useSignal(false);
    const simulate = async () => {
        busy.value = true;
        try {
            return { key, answer: await send("POST", `api/x1/experiments/${id}/what-if`, request ?? {}) };
        } finally {
            busy.value = false;
        }
    };
    const { data, error, refetch } = useLoad(key, request ? simulate : null);
    const answer = /** @type {Replay | null} */ (data?.key === key ? data.answer : null);
    return div(
        { class: "tab-columns" },
        section(
            { class: "wide" },
            h2(null, "What if"),
            p(
                { class: "muted" },
                "Replays the recorded curves of this experiment through another searcher, in a simulated cluster. A point that was not trained gets the curve of the nearest one that was.",
            ),
            Form({ asked, busy: busy.value, error: busy.value ? "" : error, again: () => void refetch() }),
            busy.value ? LoadingBar({}) : null,
        ),
        answer && request && !busy.value ? Result({ view, answer, request }) : null,
    );
});

/** @param {URLSearchParams} query @returns {WhatIfForm} */
function formOf(query) {
    return /** @type {WhatIfForm} */ (
        Object.fromEntries(Object.keys(EMPTY_FORM).map(key => [key, query.get(key) ?? ""]))
    );
}

/** What is asked stands in the address, and is simulated again where that is opened. */
const Form = component(
    (
        /** @type {{ asked: WhatIfForm, busy: boolean, error: string, again: () => void }} */ {
            asked,
            busy,
            error,
            again,
        },
    ) => {
        const fields = useSignal(asked);
        const sentence = useSignal("");
        useEffect(() => {
            fields.value = asked; // another address
        }, [asked]);
        const complaint = sentence.value || error;
        /** @param {SubmitEvent} event */
        const submit = event => {
            event.preventDefault();
            const parsed = requestOf(fields.value);
            sentence.value = "sentence" in parsed ? parsed.sentence : "";
            if (sentence.value) return;
            if (JSON.stringify(fields.value) === JSON.stringify(asked)) again();
            else
                setQuery(
                    Object.fromEntries(Object.entries(fields.value).map(([key, text]) => [key, text.trim() || null])),
                );
        };
        return form(
            { class: "what-if-form", onSubmit: submit },
            FIELDS.map(({ key, title, hint }) =>
                label(
                    { key },
                    title,
                    input({
                        type: "text",
                        value: fields.value[key],
                        placeholder: hint,
                        list: key === "searcher" ? "searchers" : undefined,
                        onInput: event => {
                            fields.value = { ...fields.value, [key]: event.currentTarget.value };
                        },
                    }),
                ),
            ),
            datalist(
                { id: "searchers" },
                SEARCHERS.map(name => option({ key: name, value: name })),
            ),
            button({ class: "primary", disabled: busy }, busy ? "Simulating …" : "Simulate"),
            complaint ? p({ class: "error-text", role: "alert" }, visible(complaint, 1000)) : null,
        );
    },
);

const Result = component(
    (/** @type {{ view: ExperimentView, answer: Replay, request: WhatIfRequest }} */ { view, answer, request }) => {
        const { id } = view.board.experiment;
        const found = useMemo(() => outcome(answer), [answer]);
        const data = useMemo(() => chartData(answer, id), [answer]);
        const smaller = answer.smallerIsBetter;
        const name = visible(answer.searcher, 40);
        const medians = /** @type {const} */ ({
            best: found.best,
            seconds: found.seconds,
            slotSeconds: found.slotSeconds,
            trials: found.trials,
            reached: found.reached,
        });
        return section(
            { class: "wide" },
            p({ class: "what-if-outcome" }, sentenceOf(answer, found)),
            Chart({ data, height: 320 }),
            table(
                { class: "rung-table" },
                caption(null, `${plural(answer.workers, "worker")}, ${plural(answer.runs.length, "simulation")}`),
                thead(
                    null,
                    tr(
                        null,
                        [
                            "Search",
                            `Best ${visible(answer.metric, 40)}`,
                            "Time",
                            "Slot-hours",
                            "Trials",
                            "As good as recorded after",
                        ].map(title => th({ key: title, scope: "col" }, title)),
                    ),
                ),
                tbody(
                    null,
                    Row({ name: "as recorded", values: valuesOf(answer.recorded, found.target, smaller) }),
                    Row({ name: `${name}, median`, values: medians, leads: true }),
                    answer.runs.map((run, at) =>
                        Row({
                            key: at,
                            name: `simulation ${at + 1}`,
                            values: valuesOf(run, found.target, smaller),
                        }),
                    ),
                ),
            ),
            answer.short
                ? p(
                      { class: "muted" },
                      `${count(answer.short)} of ${plural(answer.trials, "recorded trial")} were stopped early: nothing is known of how they would have continued, and a searcher that continues them finds their end.`,
                  )
                : null,
            button(
                { type: "button", onClick: () => copyText(argumentsOf(id, request).map(shellWord).join(" ")) },
                "Copy as det",
            ),
        );
    },
);

/** @typedef {{ best: number | null, seconds: number | null, slotSeconds: number | null, trials: number | null, reached: number | null }} RunValues */

/** @param {SearchRun} run @param {number | null} target @param {boolean} smaller @returns {RunValues} */
function valuesOf(run, target, smaller) {
    const { seconds, slotSeconds, trials } = run;
    return { best: bestOf(run), seconds, slotSeconds, trials, reached: secondsTo(run, target, smaller) };
}

const Row = component(
    (/** @type {{ name: string, values: RunValues, leads?: boolean }} */ { name, values, leads = false }) =>
        tr(
            { class: leads ? "leads" : "" },
            th({ scope: "row" }, name),
            td(null, Value({ value: values.best })),
            td(null, duration(values.seconds)),
            td(null, values.slotSeconds === null ? "–" : number(values.slotSeconds / HOUR)),
            td(null, values.trials === null ? "–" : count(Math.round(values.trials))),
            td(null, values.reached === null ? "never" : duration(values.reached)),
        ),
);

/**
 * @param {Replay} answer
 * @param {ReturnType<typeof outcome>} found
 */
function sentenceOf({ recorded, runs, metric, searcher }, found) {
    const name = visible(searcher, 40);
    const cost = `${number((found.slotSeconds ?? 0) / HOUR)} slot-hours instead of ${number(recorded.slotSeconds / HOUR)}`;
    const goal = `${visible(metric, 40)} ${number(found.target)}`;
    if (found.never * 2 > runs.length)
        return `${name} does not find a ${goal} in ${count(found.never)} of ${plural(runs.length, "simulation")}; it uses ${cost}.`;
    const never = found.never ? ` (never in ${count(found.never)} of ${count(runs.length)})` : "";
    return `${name} finds a ${goal} after ${duration(found.reached)}${never}, and ends with ${number(found.best)}; it uses ${cost}.`;
}

/** @param {Replay} answer @param {number} experiment */
function chartData(answer, experiment) {
    const { x, y } = bestCurves([answer.recorded, ...answer.runs]);
    const [recorded = [], ...runs] = y;
    const hours = (x.at(-1) ?? 0) > 2 * HOUR;
    return {
        label: `Best ${answer.metric} over time`,
        xTitle: hours ? "hours" : "minutes",
        yTitle: answer.metric,
        x: x.map(at => at / (hours ? HOUR : 60)),
        series: [
            { name: "as recorded", y: recorded, bold: true },
            { name: `${answer.searcher}, median`, y: medianCurve(runs), bold: true },
            ...(runs.length > 1 ? runs.slice(0, SHOWN_RUNS) : []).map((values, at) => ({
                name: `simulation ${at + 1}`,
                y: values,
                faded: true,
            })),
        ],
        source: `experiment ${experiment}, replayed through ${answer.searcher}`,
    };
}
