/** The head of every view of an experiment: its state and why, its best trial, what it has used. */
import { may } from "../api/session.js";
import { clock, session } from "../api/state.js";
import { ACTIONS } from "../lib/actions.js";
import { count, number, plural, visible } from "../lib/format.js";
import { hasEnded } from "../lib/states.js";
import { Duration, ExpectedStart, Labels, Progress, RelativeTime, StateLabel, Value } from "../ui/cells.js";
import { Menu, toastError } from "../ui/overlay.js";
import { href } from "../ui/router.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentHead } from "../../types/api.d.ts" */
/** @import { ExperimentView, TrialRow } from "./experiment.js" */

const { a, div, h1, p, span } = tags;

export const Head = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const head = view.board.experiment;
    const failed = head.state === "ERROR";
    const culprit = failed ? view.trials.find(row => row["state"] === "ERROR") : undefined;
    const starts = nextStart(view.trials);
    return div(
        { class: "detail-head" },
        div(
            { class: "detail-title" },
            h1({ title: visible(head.description, 1000) || undefined }, visible(head.name, 200)),
            StateLabel({ state: head.state }),
            head.archived ? span({ class: "label" }, "archived") : null,
            Labels({ labels: head.labels.slice(0, 20) }),
            span({ class: "gap" }),
            Actions({ view }),
        ),
        p(
            { class: failed ? "detail-reason failed" : "detail-reason" },
            visible(head.why, 1000) || (failed ? "Failed." : ""),
            starts !== null ? span(null, "; next start: ", ExpectedStart({ at: starts })) : null,
            culprit
                ? span(
                      null,
                      ". ",
                      a({ href: href(`trials/${culprit["id"]}`) }, `Trial ${culprit["id"]} and its log`),
                      head.why.includes(String(culprit["why"])) ? "" : `: ${visible(String(culprit["why"]), 500)}`,
                  )
                : null,
        ),
        div(
            { class: "detail-facts" },
            head.bestTrial === null
                ? null
                : span(
                      null,
                      span({ class: "muted" }, `best ${visible(head.metric, 40)} `),
                      span({ class: "best" }, Value({ value: head.best })),
                      " of ",
                      a({ href: href(`trials/${head.bestTrial}`) }, `trial ${head.bestTrial}`),
                  ),
            hasEnded(head.state)
                ? null
                : span({ class: "detail-progress", title: budget(head) }, Progress({ share: head.progress })),
            span({ title: budget(head) }, trialCounts(head)),
            span(
                { title: `${plural(head.slots, "slot")} a trial, in ${visible(head.pool, 60)}` },
                `${number(head.slotSeconds / 3600)} slot-hours`,
                head.secondsSaved ? `, ${number(head.secondsSaved / 3600)} saved` : "",
            ),
            span(
                null,
                span({ class: "muted" }, "started "),
                RelativeTime({ seconds: head.started }),
                span({ class: "muted" }, head.ended === null ? ", for " : ", took "),
                Duration({ seconds: (head.ended ?? clock.value / 1000) - head.started }),
            ),
            span(
                { class: "muted" },
                `${visible(head.user, 40)} in ${visible(head.workspace, 40)} › ${visible(head.project, 40)}`,
                head.parent === null ? "" : ", forked from ",
                head.parent === null ? null : a({ href: href(`experiments/${head.parent}`) }, String(head.parent)),
            ),
        ),
    );
});

/** @param {ExperimentHead} head */
function trialCounts(head) {
    const waiting = head.counts["QUEUED"] ?? 0;
    const running = (head.counts["RUNNING"] ?? 0) + (head.counts["STARTING"] ?? 0) + (head.counts["PULLING"] ?? 0);
    const limit = head.maxTrials !== null && head.maxTrials > head.trials ? ` of ${count(head.maxTrials)}` : "";
    const paused = head.counts["PAUSED_BY_SEARCH"] ?? 0;
    const live = [
        running ? `${count(running)} running` : "",
        waiting ? `${count(waiting)} waiting` : "",
        paused ? `${count(paused)} paused` : "",
    ];
    return [`${count(head.trials)}${limit} ${head.trials === 1 && !limit ? "trial" : "trials"}`, ...live]
        .filter(Boolean)
        .join(", ");
}

/** @param {ExperimentHead} head */
function budget(head) {
    const each =
        head.maxTime === null ? "" : `, each for at most ${count(head.maxTime)} ${visible(head.timeMetric, 40)}`;
    return `${head.searcher}: ${plural(head.maxTrials ?? head.trials, "trial")}${each}`;
}

/** When the first of the waiting ones is expected to start. @param {TrialRow[]} trials */
function nextStart(trials) {
    let first = Infinity;
    for (const row of trials) {
        const at = row["expectedStart"];
        if (typeof at === "number" && at < first) first = at;
    }
    return first < Infinity && first > 0 ? first : null;
}

/** What a user may do to it; what would be refused is not there. */
const Actions = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const head = view.board.experiment;
    const user = session.value?.user;
    const editable = Boolean(user?.admin || user?.id === head.userId || session.value?.roles);
    const subject = { id: head.id, state: head.state, archived: head.archived, editable };
    /** @param {string} permission */
    const can = permission => editable && may(permission, head.workspaceId);
    /** @param {(tools: typeof import("./experiment_actions.js")) => unknown} use */
    const lazily = use => () => {
        import("./experiment_actions.js").then(use).catch(toastError);
    };
    const items = () => [
        ...ACTIONS.filter(
            action => action.name !== "delete" && can(action.permission) && action.skips(subject) === "",
        ).map(action => ({
            text: action.text,
            dangerous: action.dangerous ?? false,
            action: lazily(tools => tools.runAction(view, action)),
        })),
        ...(can("UPDATE_EXPERIMENT_METADATA")
            ? [
                  { text: "Edit …", hint: "name, labels", action: lazily(tools => tools.edit(view)) },
                  { text: "Move …", hint: "to another project", action: lazily(tools => tools.move(view)) },
              ]
            : []),
        ...(can("UPDATE_EXPERIMENT") && !hasEnded(head.state) && !head.unmanaged
            ? [{ text: "Resources …", hint: "priority, slots", action: lazily(tools => tools.resources(view)) }]
            : []),
        ...(may("CREATE_NSC", head.workspaceId)
            ? [
                  {
                      text: "TensorBoard",
                      hint: view.marks.value.size ? "of the marked trials" : "of all trials",
                      action: lazily(tools => tools.tensorboard(view)),
                  },
              ]
            : []),
        ...(may("CREATE_EXPERIMENT", head.workspaceId) && !head.unmanaged
            ? [{ text: "Fork", hint: "copy as det", action: lazily(tools => tools.fork(view)) }]
            : []),
        { text: "Copy as det", hint: "describe", action: lazily(tools => tools.describe(view)) },
        ...(can("DELETE_EXPERIMENT") && hasEnded(head.state)
            ? [{ text: "Delete …", dangerous: true, action: lazily(tools => tools.remove(view)) }]
            : []),
    ];
    return Menu({ label: "Actions", text: "Actions", class: "primary", items });
});
