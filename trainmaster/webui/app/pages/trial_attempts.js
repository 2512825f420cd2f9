/** A trial's life over its jobs: what walltimes, failures and the queue have cost it. */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { lifeOf } from "../lib/attempts.js";
import { count, duration, number, plural, visible } from "../lib/format.js";
import { Ago, Lasted } from "../ui/cells.js";
import { Gantt } from "../ui/gantt.js";
import { Menu } from "../ui/overlay.js";
import { clock } from "../ui/shell.js";
import { Table, useRows } from "../ui/table.js";
import { tableItems } from "../ui/table_files.js";
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
                const one = answer.curves[0];
                curve.value = one ? { title: one.metric, at: one.x.map(at => at + trial.started), y: one.y } : null;
            },
            () => undefined, // the jobs are shown without it
        );
    }, [trial.id, trial.steps]);
    const live = attempts.some(one => one.ended === null);
    const now = live ? clock.value / 1000 : (trial.ended ?? 0);
    const life = useMemo(() => lifeOf(attempts, now), [attempts, now]);
    const latestFirst = useMemo(() => [...attempts].reverse(), [attempts]);
    const rows = useRows(latestFirst);
    if (attempts.length === 0)
        return div({ class: "empty" }, p(null, "It has no job yet: it waits for its turn in the search."));
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
    const cells = () => attempts.map(one => names.map(name => /** @type {any} */ (one)[name]));
    return div(
        { class: "table-page" },
        p(
            { class: "sentence" },
            `${plural(attempts.length, "job")}: ${duration(life.ran)} at work, ${duration(life.waited)} in the queue`,
            life.lost > 0
                ? `, ${duration(life.lost)} (${plural(life.lostSteps, "batch", "batches")}) of work that a later job did again`
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
                    tableItems({
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
                column("how", "How it ended", 320, row => howOf(row)),
                column("job", "Job", 110, row => visible(row.job ?? "–", 60)),
                column("nodes", "Nodes", 140, row => visible(row.nodes.join(", ") || "–", 200)),
                column("created", "Asked for", 100, row => Ago({ seconds: row.created }), "right"),
                column(
                    "waited",
                    "Waited",
                    100,
                    row => Lasted({ seconds: (row.started ?? row.ended ?? clock.value / 1000) - row.created }),
                    "right",
                ),
                column(
                    "ran",
                    "Ran",
                    100,
                    row =>
                        row.started === null
                            ? "–"
                            : Lasted({ seconds: (row.ended ?? clock.value / 1000) - row.started }),
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
    const failed = row.exits.find(one => one.code !== null && one.code !== 0);
    const text = row.ended === null ? row.waits || "at work" : row.how || row.outcome || "ended";
    const words = `${row.attempt}: ${text}${failed && !text.includes("rank") ? ` (rank ${failed.rank} on ${failed.node}: ${failed.text || failed.code})` : ""}`;
    return span({ title: visible(words, 1000) }, visible(words, 300));
}

/** @param {Attempt} row */
function stepsOf(row) {
    if (row.trainedTo === null) return "–";
    return `${count(row.trainedFrom ?? 0)} to ${count(row.trainedTo)}`;
}
