/** The actions on one experiment, and the dialogs that explain them first. */
import { signal } from "../../vendor/signals/signals.js";
import { get, send } from "../api/http.js";
import { shellWord } from "../lib/files.js";
import { bytes, plural, visible } from "../lib/format.js";
import { act, confirmAction, copyText, openDialog, toast, toastError } from "../ui/overlay.js";
import { href, navigate } from "../ui/router.js";
import { component, tags } from "../ui/tags.js";

/** @import { Action } from "../lib/actions.js" */
/** @import { ExperimentView } from "./experiment.js" */
/** @import { Signal } from "../../vendor/signals/signals.js" */

const { div, input, label, option, p, select, textarea } = tags;

/** @type {Record<string, string>} */
const MEANING = {
    cancel: "Its trials save their work and end. This cannot be undone.",
    kill: "Its jobs are killed at once and lose unsaved work. This cannot be undone.",
};

/**
 * @param {ExperimentView} view
 * @param {Action} action
 */
export async function runAction(view, action) {
    const { id, name } = view.board.experiment;
    const meaning = MEANING[action.name];
    if (meaning) {
        const title = `${action.text} experiment ${id}?`;
        const dangerous = action.dangerous ?? false;
        if (
            !(await confirmAction({ title, text: `${visible(name, 100)}: ${meaning}`, action: action.text, dangerous }))
        ) {
            return;
        }
    }
    await change(view, send("POST", `api/v1/experiments/${id}/${action.name}`), `${action.text} requested.`);
}

/**
 * @param {ExperimentView} view
 * @param {Promise<unknown>} promise
 * @param {string} message
 */
async function change(view, promise, message) {
    if (await act(promise, message)) view.reload();
}

/** @param {ExperimentView} view */
export function fork(view) {
    const { id } = view.board.experiment;
    const file = `experiment-${id}.yaml`;
    return copyText(
        `det experiment config ${id} > ${file} && det experiment download-model-def --output-dir experiment-${id} ${id} && det experiment create ${shellWord(file)} experiment-${id}`,
    );
}

/** @param {ExperimentView} view */
export function describe(view) {
    return copyText(`det experiment describe ${view.board.experiment.id}`);
}

/** @param {ExperimentView} view */
export async function tensorboard(view) {
    const { id, workspaceId } = view.board.experiment;
    const marked = [...view.marks.value];
    const target = marked.length ? { trialIds: marked } : { experimentIds: [id] };
    try {
        const answer = await send("POST", "api/v1/tensorboards", { ...target, workspaceId });
        const task = answer.tensorboard.id;
        toast("TensorBoard is starting.", {
            action: { text: "Log", run: () => navigate(href(`tasks/${task}/log`)) },
        });
    } catch (error) {
        toastError(error);
    }
}

// -- editing ----------------------------------------------------------------------------------------------------------

/** @param {ExperimentView} view */
export async function edit(view) {
    const head = view.board.experiment;
    const draft = signal({ name: head.name, description: head.description, labels: head.labels.join(", ") });
    const answer = await openDialog({
        title: `Edit experiment ${head.id}`,
        body: () => EditForm({ draft }),
        actions: [{ text: "Save", answer: "save" }],
    });
    if (answer !== "save") return;
    const { name, description } = draft.value;
    const labels = [...new Set(draft.value.labels.split(",").map(text => text.trim()))].filter(Boolean);
    const changes = {
        ...(name === head.name ? {} : { name }),
        ...(description === head.description ? {} : { description }),
        ...(labels.join() === head.labels.join() ? {} : { labels }),
    };
    if (Object.keys(changes).length) {
        await change(view, send("PATCH", `api/v1/experiments/${head.id}`, changes), "Saved.");
    }
}

const EditForm = component(
    (/** @type {{ draft: Signal<{ name: string, description: string, labels: string }> }} */ { draft }) => {
        /** @param {"name" | "description" | "labels"} name */
        const field = name => ({
            value: draft.value[name],
            onInput: (/** @type {{ currentTarget: { value: string } }} */ event) => {
                draft.value = { ...draft.value, [name]: event.currentTarget.value };
            },
        });
        return div(
            { class: "form" },
            label(null, "Name", input({ type: "text", maxLength: 1000, ...field("name") })),
            label(null, "Description", textarea({ rows: 3, maxLength: 10_000, ...field("description") })),
            label(null, "Labels, comma-separated", input({ type: "text", ...field("labels") })),
        );
    },
);

/** @param {ExperimentView} view */
export async function resources(view) {
    const head = view.board.experiment;
    const before = { priority: textOf(head.priority), weight: textOf(head.weight), maxSlots: textOf(head.maxSlots) };
    const draft = signal(before);
    const answer = await openDialog({
        title: `Resources of experiment ${head.id}`,
        body: () => ResourcesForm({ draft }),
        actions: [{ text: "Save", answer: "save" }],
    });
    if (answer !== "save") return;
    const now = draft.value;
    /** @type {Record<string, number | null>} */
    const changes = {};
    for (const name of /** @type {const} */ (["priority", "weight", "maxSlots"])) {
        if (now[name] === before[name]) continue;
        if (now[name] === "" && name !== "maxSlots") continue; // those have no other way back
        changes[name] = now[name] === "" ? null : Number(now[name]);
    }
    if (Object.keys(changes).length) {
        await change(view, send("PATCH", `api/v1/experiments/${head.id}`, { resources: changes }), "Saved.");
    }
}

/** @param {number | null} value */
function textOf(value) {
    return value === null ? "" : String(value);
}

const ResourcesForm = component(
    (/** @type {{ draft: Signal<{ priority: string, weight: string, maxSlots: string }> }} */ { draft }) => {
        /** @param {"priority" | "weight" | "maxSlots"} name */
        const field = name => ({
            type: /** @type {const} */ ("number"),
            value: draft.value[name],
            onInput: (/** @type {{ currentTarget: { value: string } }} */ event) => {
                draft.value = { ...draft.value, [name]: event.currentTarget.value };
            },
        });
        return div(
            { class: "form" },
            label(null, "Priority, from 1; empty: the pool's default", input({ ...field("priority"), min: 1 })),
            label(null, "Weight, for fair shares", input({ ...field("weight"), min: 0, step: "any" })),
            label(null, "Maximum slots; empty: no limit", input({ ...field("maxSlots"), min: 0 })),
        );
    },
);

/** @param {ExperimentView} view */
export async function move(view) {
    const head = view.board.experiment;
    /** @type {{ projects: { id: number, name: string, archived: boolean, workspaceName?: string }[] }} */
    const listed = await get("api/v1/workspaces/0/projects?limit=1000");
    const open = listed.projects.filter(project => !project.archived && project.id !== head.projectId);
    const chosen = signal(String(open[0]?.id ?? ""));
    const answer = await openDialog({
        title: `Move experiment ${head.id}`,
        body: () =>
            open.length
                ? ProjectChoice({ open, chosen })
                : p(null, "There is no other project. Create one: det project create WORKSPACE NAME"),
        actions: open.length ? [{ text: "Move", answer: "move" }] : [],
    });
    if (answer !== "move") return;
    const to = { destinationProjectId: Number(chosen.value) };
    await change(view, send("POST", `api/v1/experiments/${head.id}/move`, to), "Moved.");
}

const ProjectChoice = component(
    (
        /** @type {{ open: { id: number, name: string, workspaceName?: string }[], chosen: Signal<string> }} */ {
            open,
            chosen,
        },
    ) =>
        label(
            null,
            "Project",
            select(
                {
                    value: chosen.value,
                    onChange: event => {
                        chosen.value = event.currentTarget.value;
                    },
                },
                open.map(project =>
                    option(
                        { key: project.id, value: String(project.id) },
                        `${project.workspaceName ? `${visible(project.workspaceName, 40)} › ` : ""}${visible(project.name, 60)}`,
                    ),
                ),
            ),
        ),
);

/** @param {ExperimentView} view */
export async function remove(view) {
    const { id, name } = view.board.experiment;
    const words = new URLSearchParams({ save_experiment_best: "0", save_trial_best: "0", save_trial_latest: "0" });
    /** @type {{ checkpoints: { Resources: Record<string, number> | null }[] }} */
    const { checkpoints } = await get(`experiments/${id}/preview_gc?${words}`);
    const size = checkpoints.reduce(
        (sum, checkpoint) => sum + Object.values(checkpoint.Resources ?? {}).reduce((all, part) => all + part, 0),
        0,
    );
    const text = `${visible(name, 100)}: its trials, metrics and logs are deleted${
        checkpoints.length ? `, and ${plural(checkpoints.length, "checkpoint")} of ${bytes(size)}` : ""
    }. This cannot be undone.`;
    if (!(await confirmAction({ title: `Delete experiment ${id}?`, text, action: "Delete", dangerous: true }))) return;
    const deleted = await act(send("DELETE", `api/v1/experiments/${id}`), `Deleting experiment ${id}.`);
    if (deleted) navigate(href("experiments"));
}
