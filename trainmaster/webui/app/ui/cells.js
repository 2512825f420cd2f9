/** What stands in cells: states, times, progress, numbers. */

import { clock } from "../api/state.js";
import { ago, duration, exact, number, percent, visible } from "../lib/format.js";
import { SHAPES, stateLook } from "../lib/states.js";
import { component, tags } from "./tags.js";

const { path, progress, span, svg, time } = tags;

/** A state in word, shape and colour. */
export const StateLabel = component((/** @type {{ state: string }} */ { state }) => {
    const { word, look } = stateLook(state);
    return span({ class: `state ${look}` }, StateIcon({ look }), word);
});

export const StateIcon = component((/** @type {{ look: import("../lib/states.js").Look }} */ { look }) =>
    svg(
        { class: `shape ${look}`, viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" },
        path({ d: SHAPES[look] }),
    ),
);

/** How long ago, with the moment in the title. `seconds`: since 1970. */
export const RelativeTime = component((/** @type {{ seconds: number | null }} */ { seconds }) => {
    if (seconds === null) return span(null, "–");
    const moment = seconds * 1000;
    return time({ title: exact(moment), dateTime: new Date(moment).toISOString() }, ago(moment, clock.value));
});

/**
 * When a job may begin: the scheduler's word, never a promise. `at`: seconds since 1970; `error`: by how many seconds
 * such estimates were off lately.
 */
export const ExpectedStart = component(
    (/** @type {{ at: number, error?: number | null | undefined }} */ { at, error }) => {
        const moment = at * 1000;
        if (moment < clock.value) return span({ title: exact(moment) }, "overdue by the scheduler's estimate");
        return time(
            { dateTime: new Date(moment).toISOString(), title: `${exact(moment)} by the scheduler's estimate` },
            `expected to start ${ago(moment, clock.value)}`,
            error === null || error === undefined ? "" : ` (recent estimates in this pool: ±${duration(error)})`,
        );
    },
);

export const Duration = component((/** @type {{ seconds: number | null }} */ { seconds }) =>
    span({ title: seconds === null ? undefined : `${Math.round(seconds)} s` }, duration(seconds)),
);

/** A share of what is to be done, as a bar with its number. */
export const Progress = component((/** @type {{ share: number | null }} */ { share }) =>
    span(
        { class: share === 1 ? "progress whole" : "progress" },
        progress({ max: 1, value: share ?? 0, "aria-label": "Progress" }),
        span(null, percent(share)),
    ),
);

/** A measured value with four digits, the exact one in the title. */
export const Value = component((/** @type {{ value: unknown }} */ { value }) => {
    if (typeof value === "number") return span({ title: String(value) }, number(value));
    return span(null, value === null || value === undefined ? "–" : visible(String(value)));
});

export const Labels = component((/** @type {{ labels: string[] }} */ { labels }) =>
    span(
        { class: "labels", title: labels.map(label => visible(label)).join(", ") },
        labels.map(label => [span({ key: label, class: "label" }, visible(label, 40)), " "]),
    ),
);
