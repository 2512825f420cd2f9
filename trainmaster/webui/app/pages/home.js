/** Home page: failures to look at, running and queued experiments, open services, pools. */

import { signal } from "../../vendor/signals/signals.js";
import { send } from "../api/http.js";
import { may } from "../api/session.js";
import { clock, session } from "../api/state.js";
import { ACTIONS } from "../lib/actions.js";
import { ago, count, exact, number, plural, visible } from "../lib/format.js";
import { poolsWithRoom } from "../lib/free_pools.js";
import { ExpectedStart, Progress, RelativeTime, StateLabel, Value } from "../ui/cells.js";
import { act, confirmAction, Menu } from "../ui/overlay.js";
import { LoadError, useQuery } from "../ui/query.js";
import { dataAddress, href } from "../ui/router.js";
import { LoadingBar, usePageTitle } from "../ui/shell.js";
import { Sparkline } from "../ui/sparkline.js";
import { component, tags } from "../ui/tags.js";

/** @import { HomeAnswer, HomeExperiment, HomePool, HomeTask } from "../../types/api.d.ts" */
/** @import { Content } from "../../types/tags.d.ts" */

const { a, button, code, div, h1, h2, li, meter, p, pre, section, span, ul } = tags;

const DISMISSED_KEY = "trainmaster-seen"; // of the dismissed failures in the storage of this browser

export const Page = component(() => {
    usePageTitle([{ text: "Home", to: "" }]);
    const { data, error, refetch } = useQuery(dataAddress.value, { topic: "mine" });
    const home = /** @type {HomeAnswer | null} */ (data);
    if (!home) return error ? LoadError({ error, retry: refetch }) : LoadingBar({});
    const paused = home.runs.filter(experiment => experiment.state === "PAUSED");
    const running = home.runs.filter(experiment => experiment.state !== "PAUSED");
    const failures = home.needs.filter(experiment => !dismissed.value.has(dismissalKey(experiment)));
    const idle = home.runs.length + home.waits.length + failures.length + home.tasks.length === 0;
    /** @param {HomeExperiment} experiment */
    const properties = experiment => ({ key: experiment.id, experiment, refetch });
    return div(
        { class: "page dashboard" },
        h1({ class: "visually-hidden" }, "Home"),
        div(
            null,
            List(
                { title: "Needs you", count: failures.length, class: "failures" },
                failures.map(experiment => FailedItem(properties(experiment))),
            ),
            home.total === 0
                ? FirstSteps({})
                : List(
                      {
                          title: "Running",
                          count: running.length,
                          empty: idle
                              ? "None of your experiments is running or queued."
                              : "None of your experiments is running.",
                      },
                      running.map(experiment => RunningItem(properties(experiment))),
                  ),
            List(
                { title: "Queued", count: home.waits.length },
                home.waits.map(experiment => QueuedItem({ ...properties(experiment), pools: home.pools })),
            ),
            List(
                { title: "Paused", count: paused.length },
                paused.map(experiment => RunningItem(properties(experiment))),
            ),
            List(
                { title: "Recently ended" },
                home.done.map(experiment => EndedItem({ key: experiment.id, experiment })),
            ),
            home.total ? AllExperiments({ home }) : null,
        ),
        div(
            null,
            List(
                { title: "Open services" },
                home.tasks.map(task => ServiceItem({ key: task.id, task })),
            ),
            List(
                { title: "Pools", empty: "No pools known yet: the clusters have not answered." },
                home.pools.map(pool => PoolItem({ key: `${pool.cluster} ${pool.name}`, pool })),
            ),
        ),
    );
});

/**
 * @typedef {object} ListProperties
 * @property {string} title
 * @property {number} [count]
 * @property {string} [empty] replaces the rows where there are none; without it there is no list then
 * @property {string} [class]
 * @property {Content} [children] its rows
 */
const List = component((/** @type {ListProperties} */ { title, count: size, empty, class: name = "", children }) => {
    const rows = /** @type {Content[]} */ ([children]).flat();
    if (rows.length === 0 && !empty) return null;
    return section(
        { class: `item-list ${name}` },
        h2(null, title, size === undefined ? null : span({ class: "muted" }, ` ${count(size)}`)),
        rows.length ? ul(null, children) : p({ class: "muted" }, empty),
    );
});

const AllExperiments = component((/** @type {{ home: HomeAnswer }} */ { home }) =>
    p(
        { class: "muted" },
        a({ href: href("experiments", { filter: "user:me" }) }, `All your ${plural(home.total, "experiment")}`),
        home.others
            ? [
                  " · ",
                  a(
                      { href: href("experiments", { filter: "state:active" }) },
                      `${plural(home.others, "experiment")} of others running`,
                  ),
              ]
            : "",
    ),
);

// -- dismissed failures ----------------------------------------------------------------------------------------------

/** @type {import("../../vendor/signals/signals.js").Signal<Set<string>>} */
const dismissed = signal(readDismissed());

function readDismissed() {
    try {
        return new Set(/** @type {string[]} */ (JSON.parse(localStorage.getItem(DISMISSED_KEY) ?? "[]")));
    } catch {
        return new Set();
    }
}

/** An experiment that fails again is news again. @param {HomeExperiment} experiment */
function dismissalKey(experiment) {
    return `${experiment.id} ${Math.round(experiment.since)}`;
}

/** @param {HomeExperiment} experiment */
function dismiss(experiment) {
    const next = [...dismissed.value, dismissalKey(experiment)].slice(-500);
    dismissed.value = new Set(next);
    localStorage.setItem(DISMISSED_KEY, JSON.stringify(next));
}

// -- rows --------------------------------------------------------------------------------------------------------------

/** @param {HomeExperiment} experiment @param {Content} facts @param {Content} [tools] @param {Content} [sentence] */
function experimentRow(experiment, facts, tools = null, sentence = null) {
    return li(
        null,
        div(
            { class: "item-head" },
            StateLabel({ state: experiment.state }),
            a(
                { class: "item-name", href: href(`experiments/${experiment.id}`), title: visible(experiment.name) },
                span({ class: "muted" }, `${experiment.id} `),
                visible(experiment.name, 120),
            ),
            experiment.userId === session.value?.user?.id
                ? null
                : span({ class: "muted" }, visible(experiment.user, 30)),
            span({ class: "gap" }),
            tools,
        ),
        sentence ? p({ class: "item-note" }, sentence) : null,
        div({ class: "item-facts" }, facts),
    );
}

/** @param {HomeExperiment} experiment */
function bestValue(experiment) {
    return experiment.best === null
        ? span({ class: "muted" }, "no value yet")
        : span(
              { class: "best-value" },
              Sparkline({ values: experiment.recent }),
              span({ class: "muted" }, `${visible(experiment.metric, 30)} `),
              experiment.bestTrial === null
                  ? Value({ value: experiment.best })
                  : a(
                        {
                            href: href(`trials/${experiment.bestTrial}`),
                            title: `trial ${experiment.bestTrial}, the best`,
                        },
                        Value({ value: experiment.best }),
                    ),
          );
}

/** @typedef {{ experiment: HomeExperiment, refetch: () => unknown }} RowProperties */

const FailedItem = component((/** @type {RowProperties} */ { experiment, refetch }) =>
    experimentRow(
        experiment,
        [
            RelativeTime({ seconds: experiment.since }),
            ...(experiment.failedTrial === null
                ? []
                : [
                      a({ href: href(`trials/${experiment.failedTrial}`) }, `trial ${experiment.failedTrial}`),
                      may("VIEW_EXPERIMENT_ARTIFACTS", experiment.workspaceId) &&
                          a(
                              {
                                  href: href(`trials/${experiment.failedTrial}/log`, { find: "error" }),
                                  "aria-label": `first error of trial ${experiment.failedTrial} in its log`,
                              },
                              "first error",
                          ),
                  ]),
        ],
        [
            ExperimentMenu({ experiment, refetch }),
            button(
                {
                    type: "button",
                    class: "plain",
                    title: "Hide this failure",
                    onClick: () => dismiss(experiment),
                },
                "Dismiss",
            ),
        ],
        visible(experiment.why, 500),
    ),
);

const RunningItem = component((/** @type {RowProperties} */ { experiment, refetch }) =>
    experimentRow(
        experiment,
        [
            span({ class: "item-progress" }, Progress({ share: experiment.progress })),
            bestValue(experiment),
            span(
                null,
                `${count(experiment.running)} of ${plural(experiment.trials, "trial")} ${experiment.running === 1 ? "runs" : "run"}`,
            ),
            span(
                { title: `${Math.round(experiment.slotSeconds)} slot-seconds` },
                `${number(experiment.slotSeconds / 3600)} slot-hours`,
            ),
            experiment.eta === null
                ? null
                : span(
                      { title: exact(experiment.eta * 1000) },
                      `done ${ago(experiment.eta * 1000, clock.value)} at this rate`,
                  ),
        ],
        ExperimentMenu({ experiment, refetch }),
        experiment.waiting ? visible(experiment.why, 300) : null,
    ),
);

const QueuedItem = component((/** @type {RowProperties & { pools: HomePool[] }} */ { experiment, refetch, pools }) =>
    experimentRow(
        experiment,
        [
            span(null, "since ", RelativeTime({ seconds: experiment.since })),
            span(null, `in ${visible(experiment.pool, 40)}`),
            experiment.expectedStart === null
                ? span({ class: "muted" }, "no expected start")
                : ExpectedStart({ at: experiment.expectedStart, error: experiment.expectedError }),
            ...(may("UPDATE_EXPERIMENT", experiment.workspaceId)
                ? poolsWithRoom(experiment, pools).map(pool =>
                      MoveButton({ key: pool.name, experiment, refetch, pool }),
                  )
                : []),
        ],
        ExperimentMenu({ experiment, refetch }),
        visible(experiment.why || "The scheduler has given no reason yet.", 500),
    ),
);

/** Moves it to a pool that has room. */
const MoveButton = component(
    (/** @type {RowProperties & { pool: { name: string, free: number } }} */ { experiment, refetch, pool }) =>
        button(
            {
                type: "button",
                class: "plain",
                title: `${plural(pool.free, "slot")} free there; queued jobs are resubmitted there`,
                onClick: async () => {
                    const question = {
                        title: `Move experiment ${experiment.id} to ${visible(pool.name, 60)}?`,
                        text: `${plural(pool.free, "slot")} free there. Queued jobs are resubmitted there; running trials save their work and continue there.`,
                        action: "Move",
                    };
                    if (!(await confirmAction(question))) return;
                    const updates = [{ jobId: experiment.jobId, resourcePool: pool.name }];
                    const message = `Moving experiment ${experiment.id} to ${visible(pool.name, 60)}`;
                    if (await act(send("POST", "api/v1/job-queues", { updates }), message)) await refetch();
                },
            },
            `${visible(pool.name, 40)} has ${plural(pool.free, "free slot")}: move there`,
        ),
);

const EndedItem = component((/** @type {{ experiment: HomeExperiment }} */ { experiment }) =>
    experimentRow(experiment, [
        bestValue(experiment),
        RelativeTime({ seconds: experiment.since }),
        span(null, plural(experiment.trials, "trial")),
        span(null, `${number(experiment.slotSeconds / 3600)} slot-hours`),
    ]),
);

/** What can be done to it, of what its reader may do. */
const ExperimentMenu = component((/** @type {RowProperties} */ { experiment, refetch }) => {
    const subject = { id: experiment.id, state: experiment.state, archived: false, editable: true };
    const possible = ACTIONS.filter(
        action =>
            ["activate", "pause", "cancel", "kill", "archive"].includes(action.name) &&
            may(action.permission, experiment.workspaceId) &&
            !action.skips(subject),
    );
    if (possible.length === 0) return null;
    return Menu({
        label: `Actions for experiment ${experiment.id}`,
        text: "…",
        class: "plain",
        items: () =>
            possible.map(action => ({
                text: action.text,
                dangerous: action.dangerous ?? false,
                action: async () => {
                    const question = {
                        title: `${action.text} experiment ${experiment.id}?`,
                        text: visible(experiment.name, 200),
                        action: action.text,
                        dangerous: true,
                    };
                    if (action.dangerous && !(await confirmAction(question))) return;
                    const request = send(action.method, `api/v1/experiments/${experiment.id}/${action.name}`);
                    const message = `Experiment ${experiment.id}: ${action.text.toLowerCase()} requested`;
                    if (await act(request, message)) await refetch();
                },
            })),
    });
});

const ServiceItem = component((/** @type {{ task: HomeTask }} */ { task }) =>
    li(
        null,
        div(
            { class: "item-head" },
            StateLabel({ state: task.state }),
            task.address && task.ready
                ? a(
                      { class: "item-name", href: task.address, target: "_blank", rel: "noopener" },
                      visible(task.name, 80),
                  )
                : span({ class: "item-name" }, visible(task.name, 80)),
            span({ class: "muted" }, task.kind.toLowerCase()),
        ),
        task.why ? p({ class: "item-note" }, visible(task.why, 300)) : null,
        div({ class: "item-facts" }, RelativeTime({ seconds: task.since })),
    ),
);

const PoolItem = component((/** @type {{ pool: HomePool }} */ { pool }) =>
    li(
        null,
        div(
            { class: "item-head" },
            span({ class: "item-name" }, visible(pool.name, 60)),
            pool.accelerator ? span({ class: "muted" }, visible(pool.accelerator, 40)) : null,
            span({ class: "gap" }),
            pool.slots > 0
                ? span(
                      { class: "number" },
                      `${count(Math.max(0, pool.slots - pool.used))} free of ${plural(pool.slots, "slot")}`,
                  )
                : span({ class: "muted" }, "slots unknown"),
        ),
        pool.slots > 0
            ? meter({
                  min: 0,
                  max: pool.slots,
                  value: Math.min(pool.used, pool.slots),
                  "aria-label": `Slots used in ${visible(pool.name, 60)}`,
              })
            : null,
        pool.rests ? p({ class: "item-note" }, visible(pool.rests, 500)) : null,
        pool.waiting
            ? div({ class: "item-facts" }, `${plural(pool.waiting, "job")} ${pool.waiting === 1 ? "waits" : "wait"}`)
            : null,
    ),
);

const FirstSteps = component(() =>
    section(
        { class: "empty" },
        h2(null, "Your first experiment"),
        p(null, "On a login node, in a folder with training code and a configuration:"),
        pre(
            null,
            code(
                null,
                "pip install trainmaster\n",
                `export DET_MASTER=${new URL("../", document.baseURI).href.replace(/\/$/, "")}\n`,
                "det user login\n",
                "det experiment create config.yaml . --follow-first-trial\n",
            ),
        ),
        p({ class: "muted" }, "It appears here once it is created."),
    ),
);
