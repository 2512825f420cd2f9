/** What a search has cost, and what stopping trials early has saved. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { clock } from "../api/state.js";
import { count, duration, number, percent, plural, visible } from "../lib/format.js";
import { costCurves, regret, savings } from "../lib/savings.js";
import { Chart } from "../ui/chart.js";
import { href } from "../ui/router.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */
/** @import { Content } from "../../types/tags.d.ts" */

const { a, dd, div, dl, dt, h2, p, section } = tags;

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { board, trials } = view;
    const head = board.experiment;
    const runs = useMemo(
        () =>
            trials.map(row => ({
                id: Number(row["id"]),
                stopped: row["stop"] === "searcher" && Number(row["units"] ?? 0) < (head.maxTime ?? 0),
                units: Number(row["units"] ?? 0),
                secondsPerUnit: numberOrNull(row["secondsPerUnit"]),
                slots: head.slots,
                slotSeconds: Number(row["slotSeconds"] ?? 0),
                started: numberOrNull(row["started"]),
                ended: numberOrNull(row["ended"]),
            })),
        [trials],
    );
    const saving = useMemo(() => savings(runs, head.maxTime ?? 0), [runs]);
    const now = head.ended ?? clock.value / 1000;
    const curves = useMemo(() => costCurves(runs, saving, now), [runs, saving, Math.floor(now / 60)]);
    const lost = useMemo(() => regretOf(view), [board, trials]);
    const share = saving.saved > 0 ? saving.saved / (saving.saved + saving.used) : null;
    const facts = /** @type {[string, Content][]} */ ([
        [
            "Used",
            `${hours(saving.used)} slot-hours, by ${plural(runs.length, "trial")} of ${plural(head.slots, "slot")}`,
        ],
        ["Slots", head.slots === 1 ? "1 per trial" : `${head.slots} per trial`],
        [
            "Saved",
            saving.saved > 0
                ? `${hours(saving.saved)} slot-hours (${percent(share)} of the cost without early stopping), from ${plural(saving.stopped, "stopped trial")}`
                : "none: no trial was stopped early",
        ],
        ...(saving.unknown
            ? [
                  /** @type {[string, Content]} */ ([
                      "Not counted",
                      `${plural(saving.unknown, "trial")} stopped before their speed was known`,
                  ]),
              ]
            : []),
        ["Best value", bestOf(view, saving.used)],
        [
            "Regret",
            lost === null
                ? "unknown: needs five trials that trained to the end"
                : [
                      "Of the stopped trials ",
                      a({ href: href(`trials/${lost.trial}`) }, `trial ${lost.trial}`),
                      ` was the most likely to become the best (${percent(lost.chance)}): expected ${number(lost.expected)} ± ${number(lost.doubt)}, against ${number(lost.best)}. Estimated from ${plural(lost.from, "trial")} that trained to the end.`,
                  ],
        ],
    ]);
    return div(
        { class: "tab-columns" },
        section(
            { class: "wide" },
            h2(null, "Cost"),
            dl(
                { class: "facts" },
                facts.map(([name, text]) => [dt({ key: `${name}-` }, name), dd({ key: name }, text)]),
            ),
        ),
        section(
            { class: "wide" },
            curves.x.length
                ? Chart({
                      data: {
                          label: "Slot-hours over time",
                          xTitle: "hours since the first start",
                          yTitle: "slot-hours",
                          x: curves.x,
                          series: [
                              { name: "used", y: curves.used, bold: true },
                              { name: "without stopping", y: curves.without },
                          ],
                          source: `experiment ${head.id}`,
                      },
                      height: 280,
                  })
                : p({ class: "muted" }, "No job has started yet."),
            p(
                { class: "muted" },
                "Without stopping: each stopped trial continues at its own speed to ",
                head.maxTime === null ? "its end" : `${count(head.maxTime)} ${visible(head.timeMetric || "units", 40)}`,
                ". Queue time is not counted.",
                head.ended === null
                    ? " The search is still running."
                    : ` The search took ${duration(head.ended - head.started)}.`,
            ),
        ),
    );
});

/** @param {unknown} value */
function numberOrNull(value) {
    return typeof value === "number" ? value : null;
}

/** @param {number} seconds */
function hours(seconds) {
    return number(seconds / 3600);
}

/** @param {ExperimentView} view @param {number} used slot-seconds of all @returns {Content} */
function bestOf({ board, trials }, used) {
    const { best, bestTrial, metric } = board.experiment;
    if (bestTrial === null || typeof best !== "number") return "none yet";
    const bestRow = trials.find(row => row["id"] === bestTrial);
    const alone = Number(bestRow?.["slotSeconds"] ?? 0);
    return [
        `${visible(metric, 60)} ${number(best)} of `,
        a({ href: href(`trials/${bestTrial}`) }, `trial ${bestTrial}`),
        `, which took ${hours(alone)} of the ${hours(used)} slot-hours`,
    ];
}

/** @param {ExperimentView} view */
function regretOf({ board, trials }) {
    const { experiment, curves } = board;
    if (!curves || experiment.maxTime === null || curves.metric !== experiment.metric) return null;
    const sign = experiment.smallerIsBetter ? 1 : -1;
    const byId = new Map(trials.map(row => [Number(row["id"]), row]));
    const courses = curves.trials.map((id, at) => {
        const row = byId.get(id);
        const units = Number(row?.["units"] ?? 0);
        const values = curves.y[at] ?? [];
        const last = values.findLastIndex(value => value !== null);
        // The grid may be of batches; a trial's own end ties it to units.
        const scale = last >= 0 && (curves.x[last] ?? 0) > 0 ? units / (curves.x[last] ?? 1) : 1;
        return {
            id,
            stopped: row?.["stop"] === "searcher" && units < Number(experiment.maxTime),
            x: curves.x.slice(0, last + 1).map(x => x * scale),
            y: values.slice(0, last + 1).map(value => (value === null ? null : value * sign)),
        };
    });
    const result = regret(courses, experiment.maxTime);
    return result && { ...result, best: result.best * sign, expected: result.expected * sign };
}
