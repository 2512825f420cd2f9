/** One trial: its state and why, its metric, the job that it has now, its last lines; the rest behind tabs. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { send } from "../api/http.js";
import { follow } from "../api/live.js";
import { may } from "../api/session.js";
import { count, number, percent, plural, visible } from "../lib/format.js";
import { hasEnded } from "../lib/states.js";
import { Ago, ExpectedStart, State, Value } from "../ui/cells.js";
import { confirmed, Menu, toast, toastError } from "../ui/overlay.js";
import { dataAddress, href, place } from "../ui/router.js";
import { NotShown, useAnswer, useModule, usePlace, Waiting } from "../ui/shell.js";
import { copyCommand } from "../ui/table_files.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialBoard } from "../../types/api.d.ts" */
/** @import { ComponentTag } from "../../types/tags.d.ts" */
/** @typedef {{ board: TrialBoard, reload: () => void }} TrialView what a tab gets */
/** @typedef {{ Tab: ComponentTag<{ view: TrialView }> }} TabModule */

const { a, div, h1, nav, p, span } = tags;

const BETWEEN_LINES = 2000; // ms

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
    const { id = "", tab = "" } = place.value.names;
    const first = place.value.route?.tab;
    const { answer, said, read } = useAnswer(dataAddress.value);
    const now = /** @type {TrialBoard | null} */ (answer);
    const head = now?.trial;
    usePlace([
        { text: "Experiments", to: "experiments" },
        ...(head ? [{ text: `${head.experimentId} ${head.experiment}`, to: `experiments/${head.experimentId}` }] : []),
        { text: `trial ${id}`, to: `trials/${id}` },
    ]);
    useEffect(() => follow(`trial:${id}`, read), [id]);
    const task = head?.taskId;
    useEffect(() => {
        if (!task) return undefined;
        // Lines come often, and only a few of them stand here.
        return follow(`log:${task}`, () => read().then(() => new Promise(done => setTimeout(done, BETWEEN_LINES))));
    }, [task]);
    const shown = useModule(tab, TABS[tab]?.load);
    if (!now || !head) return said ? NotShown({ said, read }) : Waiting({});
    const view = { board: now, reload: read };
    return div(
        { class: "thing-page" },
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
                ? p(null, "There is no such view of a trial.")
                : shown
                  ? shown.Tab({ view, key: tab })
                  : Waiting({}),
        ),
    );
});

const Head = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, attempts } = view.board;
    const now = attempts.at(-1);
    return div(
        { class: "thing-head" },
        div(
            { class: "thing-title" },
            h1(
                null,
                `Trial ${trial.id}`,
                span({ class: "muted" }, " of "),
                a({ href: href(`experiments/${trial.experimentId}`) }, visible(trial.experiment, 100)),
            ),
            State({ state: trial.state }),
            span({ class: "gap" }),
            Actions({ view }),
        ),
        trial.why
            ? p(
                  { class: "thing-why" },
                  visible(trial.why, 1000),
                  trial.state === "ERROR" && may("VIEW_EXPERIMENT_ARTIFACTS", trial.workspaceId)
                      ? [" ", a({ href: href(`trials/${trial.id}/log`, { find: "error" }) }, "First error in the log")]
                      : null,
              )
            : null,
        trial.stop === "searcher"
            ? p(
                  { class: "thing-why" },
                  a(
                      { href: href(`experiments/${trial.experimentId}/rungs`, { trial: String(trial.id) }) },
                      "What did the search know?",
                  ),
              )
            : null,
        div(
            { class: "thing-facts" },
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
            now ? span(null, nowOf(now)) : null,
            now?.endsAt && now.ended === null ? span(null, "until ", Ago({ seconds: now.endsAt })) : null,
            now?.waits ? span({ class: "home-why" }, visible(now.waits, 300)) : null,
            now?.expectedStart && now.started === null
                ? ExpectedStart({ at: now.expectedStart, error: now.expectedError })
                : null,
            span(null, `${number(trial.slotSeconds / 3600)} slot-hours`),
            trial.restarts
                ? span(null, `${count(trial.restarts)} of ${plural(trial.maxRestarts, "restart")} used`)
                : null,
            trial.refusedReports
                ? span(
                      { class: "home-why", title: "The trial's log has the cause" },
                      `${plural(trial.refusedReports, "report")} refused for good`,
                  )
                : null,
            span({ class: "muted" }, visible(trial.user, 40)),
        ),
    );
});

/** @param {import("../../types/api.d.ts").Attempt} now */
function nowOf(now) {
    const where =
        now.nodes
            .slice(0, 4)
            .map(one => visible(one, 40))
            .join(", ") + (now.nodes.length > 4 ? ` and ${now.nodes.length - 4} more` : "");
    const job = now.job ? ` ${visible(now.job, 40)}` : "";
    if (now.ended !== null) return `job${job} was the last of ${plural(now.attempt, "job")}`;
    return now.started === null
        ? `job${job} is in the queue of ${visible(now.pool, 40)}`
        : `job${job} on ${where || "its nodes"}`;
}

const Actions = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial } = view.board;
    const update = may("UPDATE_EXPERIMENT", trial.workspaceId) && !trial.unmanaged;
    const create = may("CREATE_EXPERIMENT", trial.workspaceId) && !trial.unmanaged;
    const ended = hasEnded(trial.state);
    const kill = async () => {
        const sure = {
            title: `Kill trial ${trial.id}?`,
            text: "Its job is ended at once, without saving. The search goes on.",
            action: "Kill",
            dangerous: true,
        };
        if (!(await confirmed(sure))) return;
        await send("POST", `api/v1/trials/${trial.id}/kill`).then(
            () => toast(`Trial ${trial.id} is being killed`),
            toastError,
        );
        view.reload();
    };
    const again = (checkpoint = "") => {
        import("./trial_again.js").then(module => module.again(trial, checkpoint)).catch(toastError);
    };
    const items = [
        ...(update && !ended ? [{ text: "Kill", dangerous: true, action: kill }] : []),
        ...(create
            ? [
                  {
                      text: "Again …",
                      hint: "with other hyperparameters",
                      action: () => again(),
                  },
              ]
            : []),
        ...(create && trial.bestCheckpoint
            ? [
                  {
                      text: "Go on …",
                      hint: "from its best checkpoint",
                      action: () => again(trial.bestCheckpoint ?? ""),
                  },
              ]
            : []),
        { text: "Copy as det", hint: "describe", action: () => copyCommand(`det trial describe ${trial.id}`) },
        { text: "Copy the log as det", hint: "logs -f", action: () => copyCommand(`det trial logs -f ${trial.id}`) },
    ];
    return Menu({ label: "Actions", text: "Actions", class: "primary", items: () => items });
});
