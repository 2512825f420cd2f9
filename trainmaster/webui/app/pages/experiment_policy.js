/** Which checkpoints an experiment keeps: three numbers, and before they are saved, what would go. */
import { signal } from "../../vendor/signals/signals.js";
import { get, send } from "../api/http.js";
import { bytes, plural } from "../lib/format.js";
import { act, openDialog } from "../ui/overlay.js";
import { useLoad } from "../ui/query.js";
import { component, tags } from "../ui/tags.js";

/** @import { Signal } from "../../vendor/signals/signals.js" */
/** @import { ExperimentView } from "./experiment.js" */

const { code, div, input, label, li, p, ul } = tags;

const MAX_SHOWN = 10; // checkpoints that are named
const NUMBERS = /** @type {const} */ ([
    ["saveExperimentBest", "save_experiment_best", "Best of the experiment"],
    ["saveTrialBest", "save_trial_best", "Best of each trial"],
    ["saveTrialLatest", "save_trial_latest", "Latest of each trial"],
]);

/** @typedef {Record<string, string>} Draft by the names of the API */
/** @typedef {{ UUID: string, TrialID: number, Resources: Record<string, number> | null }} Doomed */

/** @param {ExperimentView} view */
export async function editPolicy(view) {
    const { id } = view.board.experiment;
    const { experiment } = await get(`api/v1/experiments/${id}`);
    const storage = experiment.config.checkpoint_storage ?? {};
    const draft = signal(
        /** @type {Draft} */ (Object.fromEntries(NUMBERS.map(([name, key]) => [name, String(storage[key] ?? 0)]))),
    );
    const answer = await openDialog({
        title: `Checkpoints that experiment ${id} keeps`,
        wide: true,
        body: () => PolicyForm({ id, draft }),
        actions: [{ text: "Save", answer: "save", disabled: () => !valid(draft.value) }],
    });
    if (answer !== "save") return;
    const checkpointStorage = Object.fromEntries(NUMBERS.map(([name]) => [name, Number(draft.peek()[name])]));
    if (await act(send("PATCH", `api/v1/experiments/${id}`, { checkpointStorage }), "Saved.")) view.reload();
}

/** @param {Draft} draft */
function valid(draft) {
    return NUMBERS.every(([name]) => /^\d{1,9}$/.test(draft[name] ?? ""));
}

const PolicyForm = component((/** @type {{ id: number, draft: Signal<Draft> }} */ { id, draft }) =>
    div(
        { class: "form" },
        p(
            { class: "muted" },
            "When the experiment has ended, a checkpoint stays if any of these numbers keeps it. Pinned ones, versions of models and what a live trial or fork needs stay in any case.",
        ),
        NUMBERS.map(([name, , text]) =>
            label(
                { key: name },
                text,
                input({
                    type: "number",
                    min: 0,
                    step: 1,
                    required: true,
                    value: draft.value[name] ?? "",
                    onInput: event => {
                        draft.value = { ...draft.peek(), [name]: event.currentTarget.value };
                    },
                }),
            ),
        ),
        valid(draft.value) ? Preview({ id, draft: draft.value }) : p({ role: "alert" }, "Write whole numbers from 0."),
    ),
);

const Preview = component((/** @type {{ id: number, draft: Draft }} */ { id, draft }) => {
    const query = new URLSearchParams(NUMBERS.map(([name, key]) => [key, draft[name] ?? ""]));
    const { data, error } = useLoad(String(query), () => get(`experiments/${id}/preview_gc?${query}`));
    if (error) return p({ class: "error-text", role: "alert" }, error);
    if (!data) return p({ class: "muted" }, "…");
    /** @type {Doomed[]} */
    const doomed = data.checkpoints;
    if (doomed.length === 0) return p({ role: "status" }, "No checkpoint would be removed.");
    const size = doomed.reduce((sum, one) => sum + sizeOf(one), 0);
    return div(
        null,
        p(
            { role: "status" },
            `Would remove ${plural(doomed.length, "checkpoint")} of ${bytes(size)}. This cannot be undone.`,
        ),
        ul(
            { class: "doomed", "aria-label": "Checkpoints that would be removed" },
            doomed
                .slice(0, MAX_SHOWN)
                .map(one =>
                    li({ key: one.UUID }, code(null, one.UUID), ` of trial ${one.TrialID}, ${bytes(sizeOf(one))}`),
                ),
            doomed.length > MAX_SHOWN ? li(null, `and ${doomed.length - MAX_SHOWN} more`) : null,
        ),
    );
});

/** @param {Doomed} checkpoint */
function sizeOf(checkpoint) {
    return Object.values(checkpoint.Resources ?? {}).reduce((sum, part) => sum + part, 0);
}
