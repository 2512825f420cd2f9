/** Two to twenty trials or experiments side by side: curves, values, what differs in their settings, code and cost. */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { moved } from "../lib/comparison.js";
import { plural, visible } from "../lib/format.js";
import { Chart } from "../ui/chart.js";
import { MetricChoice } from "../ui/metric_choice.js";
import { dataAddress, href, place, setQuery } from "../ui/router.js";
import { usePlace, Waiting } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";
import { CompareCode } from "./compare_code.js";
import { CompareTable } from "./compare_table.js";

/** @import { Comparison } from "../../types/api.d.ts" */

const { a, button, code, div, form, h1, h2, input, label, li, option, p, section, select, span, ul } = tags;

const MOST = 20;
const WAYS = [
    ["", "batches"],
    ["seconds", "seconds"],
];

/**
 * @typedef {object} CompareView what the parts of the page get
 * @property {Comparison} answer
 * @property {string} one what is compared, in a word
 * @property {number[]} ids as the address has them
 * @property {number} baseline 0: none
 * @property {(from: number, to: number) => void} move
 * @property {(id: number) => void} remove
 */

export const Page = component(() => {
    const { query } = place.value;
    const kind = query.get("experiments") ? "experiments" : "trials";
    const ids = idsOf(query.get(kind) ?? "");
    const address = dataAddress.value;
    const found = useSignal(/** @type {Comparison | null} */ (null));
    const said = useSignal("");
    const enough = ids.length > 0 && ids.length <= MOST;
    usePlace([
        { text: "Experiments", to: "experiments" },
        { text: "Compare", to: "compare" },
    ]);
    useEffect(() => {
        if (!enough) return undefined;
        let gone = false;
        get(address).then(
            answer => {
                if (gone) return;
                found.value = answer;
                said.value = "";
            },
            error => {
                if (!gone) said.value = error.message;
            },
        );
        return () => {
            gone = true;
        };
    }, [address, enough]);
    if (!enough) return Few({ kind, ids });
    const answer = found.value;
    if (!answer || answer.kind !== kind) {
        return said.value
            ? div({ class: "page", role: "alert" }, h1(null, "Not compared"), p(null, visible(said.value, 1000)))
            : Waiting({});
    }
    const write = (/** @type {number[]} */ next) => setQuery({ [kind]: next.join(",") });
    const view = {
        answer,
        one: kind.slice(0, -1),
        ids,
        baseline: Number(query.get("baseline") ?? 0),
        move: (/** @type {number} */ from, /** @type {number} */ to) => write(moved(ids, from, to)),
        remove: (/** @type {number} */ id) => write(ids.filter(other => other !== id)),
    };
    return div(
        { class: "compare-page" },
        div(
            { class: "section-head" },
            h1(null, `${plural(answer.things.length, view.one)} compared`),
            Add({ kind, ids }),
            ids.length === 1 ? span({ class: "muted" }, `Name a second one to compare it with.`) : null,
            said.value ? span({ class: "said", role: "alert" }, visible(said.value, 300)) : null,
        ),
        answer.missing.length
            ? ul(
                  { class: "said", "aria-label": "Not shown" },
                  answer.missing.map(one => li({ key: one.id }, visible(one.why, 300))),
              )
            : null,
        answer.things.length
            ? [
                  section({ key: "curves" }, Curves({ view })),
                  section({ key: "table" }, CompareTable({ view })),
                  section({ key: "code" }, h2(null, "Code"), CompareCode({ view })),
              ]
            : p(null, "Nothing of it can be shown."),
    );
});

/** @param {string} text */
function idsOf(text) {
    return [...new Set(text.split(",").map(Number).filter(Number.isInteger).filter(Boolean))];
}

const Few = component((/** @type {{ kind: string, ids: number[] }} */ { kind, ids }) =>
    div(
        { class: "page" },
        h1(null, "Compare"),
        p(
            null,
            ids.length > MOST
                ? `The address names ${ids.length} ${kind}; at most ${MOST} are compared at once.`
                : "Mark 2 to 20 experiments in the list, or trials of an experiment, and press c.",
        ),
        ids.length <= MOST ? Add({ kind, ids }) : null,
        p(
            null,
            a({ href: href("experiments") }, "To the experiments"),
            span({ class: "muted" }, " or by address: "),
            code(null, "compare?trials=12,15"),
        ),
    ),
);

const Add = component((/** @type {{ kind: string, ids: number[] }} */ { kind, ids }) => {
    const text = useSignal("");
    return form(
        {
            class: "compare-add",
            onSubmit: (/** @type {SubmitEvent} */ event) => {
                event.preventDefault();
                const more = idsOf(text.value);
                text.value = "";
                if (more.length) setQuery({ [kind]: [...new Set([...ids, ...more])].join(",") });
            },
        },
        input({
            type: "text",
            inputMode: "numeric",
            value: text.value,
            size: 10,
            placeholder: "number",
            "aria-label": `Number of a further ${kind.slice(0, -1)}`,
            onInput: event => {
                text.value = event.currentTarget.value;
            },
        }),
        button({ type: "submit" }, "Add"),
    );
});

const Curves = component((/** @type {{ view: CompareView }} */ { view }) => {
    const { answer, one } = view;
    const { query } = place.value;
    const grid = answer.curves;
    const data = useMemo(() => {
        const places = new Map((grid?.trials ?? []).map((id, at) => [id, at]));
        const x = grid?.x ?? [];
        return {
            label: `${answer.metric || "Curves"} of ${plural(answer.things.length, one)}`,
            xTitle: answer.xName,
            yTitle: answer.metric,
            x,
            series: answer.things.map(thing => ({
                name: nameOf(one, thing.id, thing.trial),
                y: x.map((_, at) => grid?.y[places.get(thing.trial ?? 0) ?? -1]?.[at] ?? null),
                bold: thing.id === view.baseline,
            })),
            source: `${answer.kind} ${answer.things.map(thing => thing.id).join(", ")}: ${answer.group} ${answer.metric}`,
        };
    }, [answer, view.baseline]);
    const x = query.get("x") ?? "";
    const ways = [...WAYS, ...(x && x !== "seconds" ? [[x, x]] : timesOf(answer))];
    const tools = [
        MetricChoice({
            metrics: answer.metrics,
            group: answer.group,
            name: answer.metric,
            onPick: picked => setQuery({ metric: picked.name, group: picked.group }),
        }),
        label(
            { class: "chart-tool" },
            "over",
            select(
                { value: x, onChange: event => setQuery({ x: event.currentTarget.value || null }) },
                ways.map(([value, words]) => option({ key: value, value }, visible(words ?? "", 40))),
            ),
        ),
    ];
    if (!grid)
        return div({ class: "section-head" }, tools, p({ class: "muted" }, "None of them has a value of this metric."));
    return Chart(
        {
            data,
            height: 340,
            settings: {
                log: query.get("log") === "1",
                logX: query.get("logx") === "1",
                smooth: Number(query.get("smooth") ?? 0) || 0,
                table: query.get("table") === "1",
                set: changes =>
                    setQuery(
                        Object.fromEntries(
                            Object.entries(changes).map(([name, value]) => [
                                name.toLowerCase(),
                                value === true ? "1" : value ? String(value) : null,
                            ]),
                        ),
                        { replace: "smooth" in changes },
                    ),
            },
        },
        tools,
    );
});

/** Metrics that likely say how long a trial has trained. @param {Comparison} answer */
function timesOf(answer) {
    return answer.metrics
        .filter(one => one.group === answer.group && /^(epochs?|steps?|records|iterations?)$/.test(one.name))
        .map(one => [one.name, one.name]);
}

/** @param {string} one @param {number} id @param {number | null} trial */
export function nameOf(one, id, trial) {
    return one === "experiment" && trial !== null ? `experiment ${id} (trial ${trial})` : `${one} ${id}`;
}
