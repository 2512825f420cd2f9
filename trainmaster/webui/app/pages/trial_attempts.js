/** A trial's life over its jobs: what walltimes, failures and the queue have cost it. */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { clock } from "../api/state.js";
import { timelineOf } from "../lib/attempt_timeline.js";
import { count, duration, number, plural, visible } from "../lib/format.js";
import { Gantt } from "../ui/attempt_chart.js";
import { Duration, RelativeTime } from "../ui/cells.js";
import { Menu } from "../ui/overlay.js";
import { Table, useRows } from "../ui/table.js";
import { tableExportItems } from "../ui/table_export.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */
/** @import { Attempt, TrialCurves } from "../../types/api.d.ts" */

const { div, p, span } = tags;

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, attempts } = view.board;
    const curve = useSignal(/** @type {{ title: string, at: number[], y: (number | null)[] } | null} */ (null));
    useEffect(() => {
        const words = new URLSearchParams({
            metrics: `validation:${encodeURIComponent(trial.metric)}`,
            x: "seconds",
            points: "500",
        });
        get(`api/x1/trials/${trial.id}/curves?${words}`).then(
            (/** @type {TrialCurves} */ answer) => {
                const firstCurve = answer.curves[0];
                curve.value = firstCurve
                    ? { title: firstCurve.metric, at: firstCurve.x.map(at => at + trial.started), y: firstCurve.y }
                    : null;
            },
            () => undefined, // the jobs are shown without it
        );
    }, [trial.id, trial.steps]);
    const live = attempts.some(attempt => attempt.ended === null);
    const now = live ? clock.value / 1000 : (trial.ended ?? 0);
    const life = useMemo(() => timelineOf(attempts, now), [attempts, now]);
    const latestFirst = useMemo(() => [...attempts].reverse(), [attempts]);
    const rows = useRows(latestFirst);
    if (attempts.length === 0)
        return div({ class: "empty" }, p(null, "No jobs yet: the trial waits for its turn in the search."));
    const names = [
        "attempt",
        "job",
        "pool",
        "nodes",
        "state",
        "outcome",
        "how",
        "created",
        "started",
        "ended",
        "trainedFrom",
        "trainedTo",
        "lostSteps",
        "slotSeconds",
    ];
    const cells = () => attempts.map(attempt => names.map(name => /** @type {any} */ (attempt)[name]));
    return div(
        { class: "table-page" },
        p(
            { class: "summary" },
            `${plural(attempts.length, "job")}: ${duration(life.ran)} running, ${duration(life.waited)} queued`,
            life.lost > 0
                ? `, ${duration(life.lost)} (${plural(life.lostSteps, "batch", "batches")}) of work redone by a later job`
                : "",
            ".",
        ),
        Gantt({ life, curve: curve.value, source: `trial ${trial.id}` }),
        div(
            { class: "section-head" },
            span({ class: "gap" }),
            Menu({
                label: "Export jobs",
                text: "Export",
                items: () =>
                    tableExportItems({
                        name: `trial-${trial.id}-jobs`,
                        head: names,
                        rows: cells(),
                        command: `det trial describe ${trial.id}`,
                    }),
            }),
        ),
        Table({
            label: "Jobs of the trial",
            rows,
            rowKey: (/** @type {Attempt} */ row) => row.id,
            columns: [
                column("how", "Outcome", 320, row => howOf(row)),
                column("job", "Job", 110, row => visible(row.job ?? "–", 60)),
                column("nodes", "Nodes", 140, row => visible(row.nodes.join(", ") || "–", 200)),
                column("created", "Submitted", 100, row => RelativeTime({ seconds: row.created }), "right"),
                column(
                    "waited",
                    "Queued for",
                    100,
                    row => Duration({ seconds: (row.started ?? row.ended ?? clock.value / 1000) - row.created }),
                    "right",
                ),
                column(
                    "ran",
                    "Ran for",
                    100,
                    row =>
                        row.started === null
                            ? "–"
                            : Duration({ seconds: (row.ended ?? clock.value / 1000) - row.started }),
                    "right",
                ),
                column("steps", "Batches", 130, row => stepsOf(row), "right"),
                column("lost", "Lost", 90, row => (row.lostSteps ? count(row.lostSteps) : "–"), "right"),
                column("slotSeconds", "Slot-hours", 100, row => number(row.slotSeconds / 3600), "right"),
            ],
        }),
    );
});

/**
 * @param {string} key
 * @param {string} title
 * @param {number} width
 * @param {(row: Attempt) => import("../../types/tags.d.ts").Content} cell
 * @param {"right"} [align]
 */
function column(key, title, width, cell, align) {
    return { key, title, width, unsorted: true, cell, ...(align ? { align } : {}) };
}

/** @param {Attempt} row */
function howOf(row) {
    const failed = row.exits.find(exit => exit.code !== null && exit.code !== 0);
    const text = row.ended === null ? row.waits || "running" : row.how || row.outcome || "ended";
    const words = `${row.attempt}: ${text}${failed && !text.includes("rank") ? ` (rank ${failed.rank} on ${failed.node}: ${failed.text || failed.code})` : ""}`;
    return span({ title: visible(words, 1000) }, visible(words, 300));
}

/** @param {Attempt} row */
function stepsOf(row) {
    if (row.trainedTo === null) return "–";
    return `${count(row.trainedFrom ?? 0)} to ${count(row.trainedTo)}`;
}
