/** What needs its reader, what runs, what waits and why and until when, services that are open, and the pools. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { signal } from "../../vendor/signals/signals.js";
import { send } from "../api/http.js";
import { follow } from "../api/live.js";
import { may, session } from "../api/session.js";
import { ACTIONS } from "../lib/actions.js";
import { poolsWithRoom } from "../lib/advice.js";
import { ago, count, exact, number, plural, visible } from "../lib/format.js";
import { Ago, ExpectedStart, Progress, State, Value } from "../ui/cells.js";
import { confirmed, Menu, toast, toastError } from "../ui/overlay.js";
import { dataAddress, href } from "../ui/router.js";
import { clock, NotShown, useAnswer, usePlace, Waiting } from "../ui/shell.js";
import { Spark } from "../ui/spark.js";
import { component, tags } from "../ui/tags.js";

/** @import { HomeAnswer, HomeExperiment, HomePool, HomeTask } from "../../types/api.d.ts" */
/** @import { Content } from "../../types/tags.d.ts" */

const { a, button, code, div, h1, h2, li, meter, p, pre, section, span, ul } = tags;

const SEEN = "trainmaster-seen"; // of failures: which of them their reader has put away, in this browser

export const Page = component(() => {
    usePlace([{ text: "Home", to: "" }]);
    const { answer, said, read } = useAnswer(dataAddress.value);
    const home = /** @type {HomeAnswer | null} */ (answer);
    useEffect(() => follow("mine", read), []);
    if (!home) return said ? NotShown({ said, read }) : Waiting({});
    const paused = home.runs.filter(one => one.state === "PAUSED");
    const runs = home.runs.filter(one => one.state !== "PAUSED");
    const needs = home.needs.filter(one => !seen.value.has(seenKey(one)));
    const quiet = home.runs.length + home.waits.length + needs.length + home.tasks.length === 0;
    return div(
        { class: "page home" },
        h1({ class: "unseen" }, "Home"),
        div(
            { class: "home-main" },
            needs.length
                ? section(
                      { class: "home-list needs" },
                      h2(null, "Needs you ", span({ class: "muted" }, count(needs.length))),
                      ul(
                          null,
                          needs.map(one => Needing({ key: one.id, one, read })),
                      ),
                  )
                : null,
            home.total === 0
                ? FirstSteps({})
                : section(
                      { class: "home-list" },
                      h2(null, "Runs ", span({ class: "muted" }, count(runs.length))),
                      runs.length
                          ? ul(
                                null,
                                runs.map(one => Running({ key: one.id, one, read })),
                            )
                          : p({ class: "muted" }, quiet ? "Nothing of yours runs or waits." : "Nothing of yours runs."),
                  ),
            home.waits.length
                ? section(
                      { class: "home-list" },
                      h2(null, "Waits ", span({ class: "muted" }, count(home.waits.length))),
                      ul(
                          null,
                          home.waits.map(one => Queued({ key: one.id, one, read, pools: home.pools })),
                      ),
                  )
                : null,
            paused.length
                ? section(
                      { class: "home-list" },
                      h2(null, "Paused ", span({ class: "muted" }, count(paused.length))),
                      ul(
                          null,
                          paused.map(one => Running({ key: one.id, one, read })),
                      ),
                  )
                : null,
            home.done.length
                ? section(
                      { class: "home-list" },
                      h2(null, "Ended lately"),
                      ul(
                          null,
                          home.done.map(one => Done({ key: one.id, one })),
                      ),
                  )
                : null,
            home.total
                ? p(
                      { class: "muted" },
                      a(
                          { href: href("experiments", { filter: "user:me" }) },
                          `All ${plural(home.total, "experiment")} of yours`,
                      ),
                      home.others
                          ? [
                                " · ",
                                a(
                                    { href: href("experiments", { filter: "state:active" }) },
                                    `${plural(home.others, "other experiment")} of others ${home.others === 1 ? "runs" : "run"}`,
                                ),
                            ]
                          : "",
                  )
                : null,
        ),
        div(
            { class: "home-side" },
            home.tasks.length
                ? section(
                      { class: "home-list" },
                      h2(null, "Open"),
                      ul(
                          null,
                          home.tasks.map(one => Service({ key: one.id, one })),
                      ),
                  )
                : null,
            section(
                { class: "home-list" },
                h2(null, "Pools"),
                home.pools.length
                    ? ul(
                          null,
                          home.pools.map(one => Pool({ key: `${one.cluster} ${one.name}`, one })),
                      )
                    : p({ class: "muted" }, "No pool is known yet: the clusters have not answered."),
            ),
        ),
    );
});

// -- what has been put away ------------------------------------------------------------------------------------------

/** @type {import("../../vendor/signals/signals.js").Signal<Set<string>>} */
const seen = signal(readSeen());

function readSeen() {
    try {
        return new Set(/** @type {string[]} */ (JSON.parse(localStorage.getItem(SEEN) ?? "[]")));
    } catch {
        return new Set();
    }
}

/** An experiment that fails again is news again. @param {HomeExperiment} one */
function seenKey(one) {
    return `${one.id} ${Math.round(one.since)}`;
}

/** @param {HomeExperiment} one */
function putAway(one) {
    const next = [...seen.value, seenKey(one)].slice(-500);
    seen.value = new Set(next);
    localStorage.setItem(SEEN, JSON.stringify(next));
}

// -- rows --------------------------------------------------------------------------------------------------------------

/** @param {HomeExperiment} one @param {Content} facts @param {Content} [tools] @param {Content} [sentence] */
function row(one, facts, tools = null, sentence = null) {
    return li(
        null,
        div(
            { class: "home-head" },
            State({ state: one.state }),
            a(
                { class: "home-name", href: href(`experiments/${one.id}`), title: visible(one.name) },
                span({ class: "muted" }, `${one.id} `),
                visible(one.name, 120),
            ),
            one.userId === session.value?.user?.id ? null : span({ class: "muted" }, visible(one.user, 30)),
            span({ class: "gap" }),
            tools,
        ),
        sentence ? p({ class: "home-why" }, sentence) : null,
        div({ class: "home-facts" }, facts),
    );
}

/** @param {HomeExperiment} one */
function bestOf(one) {
    return one.best === null
        ? span({ class: "muted" }, "no value yet")
        : span(
              { class: "home-best" },
              Spark({ values: one.recent }),
              span({ class: "muted" }, `${visible(one.metric, 30)} `),
              one.bestTrial === null
                  ? Value({ value: one.best })
                  : a(
                        { href: href(`trials/${one.bestTrial}`), title: `trial ${one.bestTrial}, the best` },
                        Value({ value: one.best }),
                    ),
          );
}

/** @typedef {{ one: HomeExperiment, read: () => unknown }} RowProperties */

const Needing = component((/** @type {RowProperties} */ { one, read }) =>
    row(
        one,
        [
            Ago({ seconds: one.since }),
            ...(one.failedTrial === null
                ? []
                : [
                      a({ href: href(`trials/${one.failedTrial}`) }, `trial ${one.failedTrial}`),
                      may("VIEW_EXPERIMENT_ARTIFACTS", one.workspaceId) &&
                          a(
                              {
                                  href: href(`trials/${one.failedTrial}/log`, { find: "error" }),
                                  "aria-label": `first error of trial ${one.failedTrial} in its log`,
                              },
                              "first error",
                          ),
                  ]),
        ],
        [
            Steering({ one, read }),
            button(
                {
                    type: "button",
                    class: "plain",
                    title: "Do not show this failure here again",
                    onClick: () => putAway(one),
                },
                "Seen",
            ),
        ],
        visible(one.why, 500),
    ),
);

const Running = component((/** @type {RowProperties} */ { one, read }) =>
    row(
        one,
        [
            span({ class: "home-progress" }, Progress({ share: one.progress })),
            bestOf(one),
            span(null, `${count(one.running)} of ${plural(one.trials, "trial")} ${one.running === 1 ? "runs" : "run"}`),
            span(
                { title: `${Math.round(one.slotSeconds)} slot-seconds` },
                `${number(one.slotSeconds / 3600)} slot-hours`,
            ),
            one.eta === null
                ? null
                : span({ title: exact(one.eta * 1000) }, `done ${ago(one.eta * 1000, clock.value)} at this speed`),
        ],
        Steering({ one, read }),
        one.waiting ? visible(one.why, 300) : null,
    ),
);

const Queued = component((/** @type {RowProperties & { pools: HomePool[] }} */ { one, read, pools }) =>
    row(
        one,
        [
            span(null, "since ", Ago({ seconds: one.since })),
            span(null, `in ${visible(one.pool, 40)}`),
            one.expectedStart === null
                ? span({ class: "muted" }, "no expected start known")
                : ExpectedStart({ at: one.expectedStart, error: one.expectedError }),
            ...(may("UPDATE_EXPERIMENT", one.workspaceId)
                ? poolsWithRoom(one, pools).map(pool => MoveTo({ key: pool.name, one, read, pool }))
                : []),
        ],
        Steering({ one, read }),
        visible(one.why || "The scheduler has not said why yet.", 500),
    ),
);

/** Moves it to a pool that has room. */
const MoveTo = component(
    (/** @type {RowProperties & { pool: { name: string, free: number } }} */ { one, read, pool }) =>
        button(
            {
                type: "button",
                class: "plain",
                title: `${plural(pool.free, "slot")} are free there now; what waits is withdrawn and submitted there`,
                onClick: async () => {
                    const sure = {
                        title: `Move experiment ${one.id} to ${visible(pool.name, 60)}?`,
                        text: `${plural(pool.free, "slot")} are free there now. Its waiting jobs are withdrawn and submitted there; running trials save their work and go on there.`,
                        action: "Move",
                    };
                    if (!(await confirmed(sure))) return;
                    try {
                        const updates = [{ jobId: one.jobId, resourcePool: pool.name }];
                        await send("POST", "api/v1/job-queues", { updates });
                        toast(`Experiment ${one.id} moves to ${visible(pool.name, 60)}`);
                        await read();
                    } catch (error) {
                        toastError(error);
                    }
                },
            },
            `${visible(pool.name, 40)} has ${plural(pool.free, "free slot")}: move it there`,
        ),
);

const Done = component((/** @type {{ one: HomeExperiment }} */ { one }) =>
    row(one, [
        bestOf(one),
        Ago({ seconds: one.since }),
        span(null, plural(one.trials, "trial")),
        span(null, `${number(one.slotSeconds / 3600)} slot-hours`),
    ]),
);

/** What can be done to it, of what its reader may do. */
const Steering = component((/** @type {RowProperties} */ { one, read }) => {
    const subject = { id: one.id, state: one.state, archived: false, mine: true };
    const possible = ACTIONS.filter(
        action =>
            ["activate", "pause", "cancel", "kill", "archive"].includes(action.name) &&
            may(action.permission, one.workspaceId) &&
            !action.skips(subject),
    );
    if (possible.length === 0) return null;
    return Menu({
        label: `Actions for experiment ${one.id}`,
        text: "…",
        class: "plain",
        items: () =>
            possible.map(action => ({
                text: action.text,
                dangerous: action.dangerous ?? false,
                action: async () => {
                    const sure = {
                        title: `${action.text} experiment ${one.id}?`,
                        text: visible(one.name, 200),
                        action: action.text,
                        dangerous: true,
                    };
                    if (action.dangerous && !(await confirmed(sure))) return;
                    try {
                        await send(action.method, `api/v1/experiments/${one.id}/${action.name}`);
                        toast(`Experiment ${one.id}: ${action.text.toLowerCase()} is under way`);
                        await read();
                    } catch (error) {
                        toastError(error);
                    }
                },
            })),
    });
});

const Service = component((/** @type {{ one: HomeTask }} */ { one }) =>
    li(
        null,
        div(
            { class: "home-head" },
            State({ state: one.state }),
            one.address && one.ready
                ? a({ class: "home-name", href: one.address, target: "_blank", rel: "noopener" }, visible(one.name, 80))
                : span({ class: "home-name" }, visible(one.name, 80)),
            span({ class: "muted" }, one.kind.toLowerCase()),
        ),
        one.why ? p({ class: "home-why" }, visible(one.why, 300)) : null,
        div({ class: "home-facts" }, Ago({ seconds: one.since })),
    ),
);

const Pool = component((/** @type {{ one: HomePool }} */ { one }) =>
    li(
        null,
        div(
            { class: "home-head" },
            span({ class: "home-name" }, visible(one.name, 60)),
            one.accelerator ? span({ class: "muted" }, visible(one.accelerator, 40)) : null,
            span({ class: "gap" }),
            one.slots > 0
                ? span(
                      { class: "number" },
                      `${count(Math.max(0, one.slots - one.used))} free of ${plural(one.slots, "slot")}`,
                  )
                : span({ class: "muted" }, "slots not known"),
        ),
        one.slots > 0
            ? meter({
                  min: 0,
                  max: one.slots,
                  value: Math.min(one.used, one.slots),
                  "aria-label": `Slots used in ${visible(one.name, 60)}`,
              })
            : null,
        one.rests ? p({ class: "home-why" }, visible(one.rests, 500)) : null,
        one.waiting
            ? div({ class: "home-facts" }, `${plural(one.waiting, "job")} ${one.waiting === 1 ? "waits" : "wait"}`)
            : null,
    ),
);

const FirstSteps = component(() =>
    section(
        { class: "empty" },
        h2(null, "Your first experiment"),
        p(null, "A folder with a training and a configuration, on a login node:"),
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
        p({ class: "muted" }, "It shows up here as soon as it is created."),
    ),
);
