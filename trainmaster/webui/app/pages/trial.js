/** One trial: its state and why, its metric, the job that it has now, its last lines; the rest behind tabs. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { send } from "../api/http.js";
import { subscribe } from "../api/live.js";
import { may } from "../api/session.js";
import { count, number, percent, plural, visible } from "../lib/format.js";
import { hasEnded } from "../lib/states.js";
import { ExpectedStart, RelativeTime, StateLabel, Value } from "../ui/cells.js";
import { act, confirmAction, copyText, Menu, toastError } from "../ui/overlay.js";
import { LoadError, useModule, useQuery } from "../ui/query.js";
import { dataAddress, href, location } from "../ui/router.js";
import { LoadingBar, usePageTitle } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialBoard } from "../../types/api.d.ts" */
/** @import { ComponentTag } from "../../types/tags.d.ts" */
/** @typedef {{ board: TrialBoard, reload: () => void }} TrialView what a tab gets */
/** @typedef {{ Tab: ComponentTag<{ view: TrialView }> }} TabModule */

const { a, div, h1, nav, p, span } = tags;

const MAX_COPIES = 10; // that its head names
const LOG_REFRESH_INTERVAL = 2000; // ms

/** @type {Record<string, { text: string, load: () => Promise<TabModule> }>} */
const TABS = {
    metrics: { text: "Metrics", load: () => import("./trial_metrics.js") },
    log: { text: "Log", load: () => import("./trial_log.js") },
    attempts: { text: "Jobs", load: () => import("./trial_attempts.js") },
    checkpoints: { text: "Checkpoints", load: () => import("./trial_checkpoints.js") },
    machine: { text: "Machine", load: () => import("./trial_machine.js") },
    environment: { text: "Environment", load: () => import("./trial_environment.js") },
    story: { text: "Story", load: () => import("./trial_story.js") },
};

export const Page = component(() => {
    const { id = "", tab = "" } = location.value.params;
    const first = location.value.route?.tab;
    const { data, error, refetch } = useQuery(dataAddress.value, { topic: `trial:${id}` });
    const board = /** @type {TrialBoard | null} */ (data);
    const head = board?.trial;
    usePageTitle([
        { text: "Experiments", to: "experiments" },
        ...(head ? [{ text: `${head.experimentId} ${head.experiment}`, to: `experiments/${head.experimentId}` }] : []),
        { text: `trial ${id}`, to: `trials/${id}` },
    ]);
    const task = head?.taskId;
    useEffect(() => {
        if (!task) return undefined;
        // Lines are frequent, and the page shows only the last few.
        return subscribe(`log:${task}`, async () => {
            await refetch();
            await new Promise(resolve => setTimeout(resolve, LOG_REFRESH_INTERVAL));
        });
    }, [task]);
    const tabModule = useModule(tab, TABS[tab]?.load);
    if (!board || !head) return error ? LoadError({ error, retry: refetch }) : LoadingBar({});
    const view = { board, reload: refetch };
    return div(
        { class: "detail-page" },
        Head({ view }),
        nav(
            { class: "tabs", "aria-label": "Views of the trial" },
            Object.entries(TABS)
                .filter(([name]) => name !== "log" || may("VIEW_EXPERIMENT_ARTIFACTS", head.workspaceId))
                .map(([name, { text }]) =>
                    a(
                        {
                            key: name,
                            href: href(name === first ? `trials/${id}` : `trials/${id}/${name}`),
                            "aria-current": name === tab ? "page" : undefined,
                        },
                        text,
                    ),
                ),
        ),
        div(
            { class: "tab" },
            TABS[tab] === undefined
                ? p(null, "A trial has no such tab.")
                : tabModule
                  ? tabModule.Tab({ view, key: tab })
                  : LoadingBar({}),
        ),
    );
});

const Head = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, attempts } = view.board;
    const now = attempts.at(-1);
    const held = trial.state === "PAUSED" && trial.searchPause === "paused";
    return div(
        { class: "detail-head" },
        div(
            { class: "detail-title" },
            h1(
                null,
                `Trial ${trial.id}`,
                span({ class: "muted" }, " of "),
                a({ href: href(`experiments/${trial.experimentId}`) }, visible(trial.experiment, 100)),
            ),
            StateLabel({ state: held ? "PAUSED_BY_SEARCH" : trial.state }),
            span({ class: "gap" }),
            Actions({ view }),
        ),
        trial.why
            ? p(
                  { class: "detail-reason" },
                  visible(trial.why, 1000),
                  trial.state === "ERROR" && may("VIEW_EXPERIMENT_ARTIFACTS", trial.workspaceId)
                      ? [" ", a({ href: href(`trials/${trial.id}/log`, { find: "error" }) }, "First error in the log")]
                      : null,
              )
            : null,
        trial.stop === "searcher" || held
            ? p(
                  { class: "detail-reason" },
                  a(
                      { href: href(`experiments/${trial.experimentId}/rungs`, { trial: String(trial.id) }) },
                      "See this decision in the rung race",
                  ),
              )
            : null,
        Copies({ trial }),
        div(
            { class: "detail-facts" },
            trial.best === null
                ? null
                : span(
                      null,
                      span({ class: "muted" }, `best ${visible(trial.metric, 40)} `),
                      Value({ value: trial.best }),
                      trial.bestSteps === null ? "" : ` at ${plural(trial.bestSteps, "batch", "batches")}`,
                  ),
            span(
                null,
                plural(trial.steps, "batch", "batches"),
                trial.progress > 0 && trial.progress < 1 ? `, ${percent(trial.progress)}` : "",
            ),
            now ? span(null, currentJobText(now)) : null,
            now?.endsAt && now.ended === null ? span(null, "until ", RelativeTime({ seconds: now.endsAt })) : null,
            now?.waits ? span({ class: "item-note" }, visible(now.waits, 300)) : null,
            now?.expectedStart && now.started === null
                ? ExpectedStart({ at: now.expectedStart, error: now.expectedError })
                : null,
            span(null, `${number(trial.slotSeconds / 3600)} slot-hours`),
            trial.restarts
                ? span(null, `${count(trial.restarts)} of ${plural(trial.maxRestarts, "restart")} used`)
                : null,
            trial.refusedReports
                ? span(
                      { class: "item-note", title: "The trial's log has the cause" },
                      `${plural(trial.refusedReports, "report")} rejected`,
                  )
                : null,
            span({ class: "muted" }, visible(trial.user, 40)),
        ),
    );
});

/** What it is a copy of, and what is a copy of it. */
const Copies = component((/** @type {{ trial: TrialBoard["trial"] }} */ { trial }) => {
    const { parent, copies } = trial;
    if (parent === null && copies.length === 0) return null;
    const link = (/** @type {number} */ id) => a({ key: id, href: href(`trials/${id}`) }, `trial ${id}`);
    const shown = copies.slice(0, MAX_COPIES);
    return p(
        { class: "detail-reason" },
        parent === null ? "Copied by " : ["A copy of ", link(parent), copies.length ? "; copied by " : ""],
        shown.map((id, at) => [at ? ", " : "", link(id)]),
        copies.length > shown.length ? ` and ${copies.length - shown.length} more` : "",
        ": ",
        a({ href: href(`experiments/${trial.experimentId}/lineage`, { marks: String(trial.id) }) }, "its lineage"),
    );
});

/** @param {import("../../types/api.d.ts").Attempt} now */
function currentJobText(now) {
    const where =
        now.nodes
            .slice(0, 4)
            .map(node => visible(node, 40))
            .join(", ") + (now.nodes.length > 4 ? ` and ${now.nodes.length - 4} more` : "");
    const job = now.job ? ` ${visible(now.job, 40)}` : "";
    if (now.ended !== null) return `job${job} was the last of ${plural(now.attempt, "job")}`;
    return now.started === null
        ? `job${job} is queued in ${visible(now.pool, 40)}`
        : `job${job} on ${where || "its nodes"}`;
}

const Actions = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial } = view.board;
    const update = may("UPDATE_EXPERIMENT", trial.workspaceId) && !trial.unmanaged;
    const create = may("CREATE_EXPERIMENT", trial.workspaceId) && !trial.unmanaged;
    const ended = hasEnded(trial.state);
    const kill = async () => {
        const question = {
            title: `Kill trial ${trial.id}?`,
            text: "Its job is killed at once and loses unsaved work. The search continues.",
            action: "Kill",
            dangerous: true,
        };
        if (!(await confirmAction(question))) return;
        await act(send("POST", `api/v1/trials/${trial.id}/kill`), `Killing trial ${trial.id}`);
        view.reload();
    };
    const openRerun = (checkpoint = "") => {
        import("./trial_rerun.js").then(module => module.rerun(trial, checkpoint)).catch(toastError);
    };
    const items = [
        ...(update && !ended ? [{ text: "Kill", dangerous: true, action: kill }] : []),
        ...(create ? [{ text: "Rerun …", hint: "with other hyperparameters", action: () => openRerun() }] : []),
        ...(create && trial.bestCheckpoint
            ? [
                  {
                      text: "Continue …",
                      hint: "from its best checkpoint",
                      action: () => openRerun(trial.bestCheckpoint ?? ""),
                  },
              ]
            : []),
        { text: "Copy as det", hint: "describe", action: () => copyText(`det trial describe ${trial.id}`) },
        { text: "Copy the log as det", hint: "logs -f", action: () => copyText(`det trial logs -f ${trial.id}`) },
    ];
    return Menu({ label: "Actions", text: "Actions", class: "primary", items: () => items });
});
