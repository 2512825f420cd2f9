/** The plan of a search: slot-hours against its budget, its expected end against the deadline, and what cannot be met. */
import { ApiError, get } from "../api/http.js";
import { clock } from "../api/state.js";
import { exact, visible } from "../lib/format.js";
import { basisOf, deadlineBar, hoursBar, moment } from "../lib/plan.js";
import { PartError, useLoad } from "../ui/query.js";
import { component, tags } from "../ui/tags.js";

/** @import { PlanBar } from "../lib/plan.js" */
/** @import { SearchPlanAnswer as SearchPlan } from "../../types/api.d.ts" */
/** @import { ExperimentView } from "./experiment.js" */

const { div, h2, li, p, section, span, ul } = tags;

const MINUTE = 60_000; // ms
const MAX_SENTENCES = 20;

export const Plan = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const head = view.board.experiment;
    const minute = Math.floor(clock.value / MINUTE) * MINUTE;
    // Planned again when a trial has changed its state; the forecast moves with the time.
    const key = JSON.stringify([head.id, head.counts, head.ended === null ? minute : 0]);
    const { data, error } = useLoad(key, () => loadPlan(head.id));
    if (!data) return error ? PartError({ error }) : null;
    const { plan } = data;
    if (!plan) return span({ class: "no-plan" });
    const now = head.ended === null ? minute : head.ended * 1000;
    const end = moment(plan.forecast.end);
    const deadline = moment(plan.budget.deadline);
    const title = [
        deadline === null ? "" : `deadline ${exact(deadline)}`,
        end === null ? "" : `expected end ${exact(end)}`,
    ].filter(Boolean);
    return section(
        { "aria-label": "Plan" },
        h2(null, "Plan"),
        div(
            { class: "plan-bars" },
            Bar({ name: "Slot-hours", bar: hoursBar(plan) }),
            Bar({ name: "Time", bar: deadlineBar(plan, head.started * 1000, now), title: title.join(", ") }),
        ),
        ul(
            { class: "plan-sentences" },
            plan.sentences.slice(0, MAX_SENTENCES).map(sentence => li({ key: sentence }, visible(sentence, 1000))),
        ),
        p({ class: "muted" }, basisOf(plan, visible(head.timeMetric || "batches", 40)).join("; "), "."),
    );
});

/**
 * The plan; null where the master has none.
 * @param {number} id
 * @returns {Promise<{ plan: SearchPlan | null }>}
 */
async function loadPlan(id) {
    try {
        return { plan: await get(`api/x1/experiments/${id}/search-plan`) };
    } catch (failure) {
        if (failure instanceof ApiError && failure.status === 404) return { plan: null };
        throw failure;
    }
}

const Bar = component(
    (/** @type {{ name: string, bar: PlanBar | null, title?: string }} */ { name, bar, title = "" }) =>
        bar
            ? div(
                  { class: bar.over ? "plan-row over" : "plan-row", title },
                  span({ class: "muted" }, name),
                  span(
                      { class: "plan-bar", "aria-hidden": "true" },
                      span({ class: "plan-forecast", style: { width: width(bar.forecast ?? bar.done) } }),
                      span({ class: "plan-done", style: { width: width(bar.done) } }),
                      span({ class: "plan-limit", style: { left: width(bar.limit) } }),
                  ),
                  span({ class: bar.over ? "error-text" : "" }, bar.text),
              )
            : null,
);

/** @param {number} share */
function width(share) {
    return `${Math.min(100, Math.max(0, share * 100)).toFixed(2)}%`;
}
