/** A trial once more, as an experiment of its own: with other hyperparameters, or from its best checkpoint. */
import { signal, useSignal } from "../../vendor/signals/signals.js";
import { get, send } from "../api/http.js";
import { visible } from "../lib/format.js";
import { fieldsOf, read } from "../lib/hparams.js";
import { openDialog, toast } from "../ui/overlay.js";
import { go, href } from "../ui/router.js";
import { component, tags } from "../ui/tags.js";

/** @import { Signal } from "../../vendor/signals/signals.js" */
/** @import { Field, Values } from "../lib/hparams.js" */
/** @import { Json, TrialHead } from "../../types/api.d.ts" */

const { button, div, form, input, label, p, span } = tags;

const LONGEST_NAME = 128;

/**
 * Asks for its hyperparameters, and creates the experiment.
 * @param {TrialHead} trial
 * @param {string} [checkpoint] that it begins with
 */
export async function again(trial, checkpoint = "") {
    const { experiment } = await get(`api/v1/experiments/${trial.experimentId}`);
    const fields = signal(fieldsOf(trial.hparams));
    const name = signal(`${experiment.name} (trial ${trial.id})`.slice(0, LONGEST_NAME));
    await openDialog({
        title: checkpoint ? `Go on from trial ${trial.id}` : `Trial ${trial.id} again`,
        wide: true,
        body: close => AgainForm({ trial, config: experiment.config, checkpoint, fields, name, close: () => close() }),
    });
}

/**
 * @typedef {object} AgainProperties
 * @property {TrialHead} trial
 * @property {Json} config of its experiment
 * @property {string} checkpoint
 * @property {Signal<Field[]>} fields
 * @property {Signal<string>} name
 * @property {() => void} close
 */
const AgainForm = component((/** @type {AgainProperties} */ { trial, config, checkpoint, fields, name, close }) => {
    const said = useSignal("");
    const busy = useSignal(false);
    /** @param {SubmitEvent} event */
    const create = async event => {
        event.preventDefault();
        const found = read(fields.value);
        if ("sentence" in found) {
            said.value = found.sentence;
            return;
        }
        busy.value = true;
        try {
            const wanted = configOf(config, name.value, found.values, checkpoint);
            const answer = await send("POST", "api/v1/experiments", {
                config: JSON.stringify(wanted),
                parentId: trial.experimentId,
                activate: true,
            });
            close();
            toast(`Experiment ${answer.experiment.id} is created`);
            go(href(`experiments/${answer.experiment.id}`));
        } catch (error) {
            said.value = error instanceof Error ? error.message : String(error);
        } finally {
            busy.value = false;
        }
    };
    return form(
        { class: "form", onSubmit: create },
        p(
            { class: "muted" },
            `It runs the files of experiment ${trial.experimentId} as a new experiment of one trial`,
            checkpoint ? `, from checkpoint ${checkpoint}.` : ".",
        ),
        label(
            null,
            "Name",
            input({
                type: "text",
                maxLength: LONGEST_NAME,
                value: name.value,
                onInput: event => {
                    name.value = event.currentTarget.value;
                },
            }),
        ),
        fields.value.length
            ? div(
                  { class: "again-fields", role: "group", "aria-label": "Hyperparameters" },
                  fields.value.map((field, at) =>
                      label(
                          { key: field.path.join("."), class: fieldClass(field) },
                          span(null, visible(field.path.join("."), 80)),
                          input({
                              type: "text",
                              spellcheck: false,
                              autofocus: at === 0,
                              value: field.text,
                              onInput: event => {
                                  const text = event.currentTarget.value;
                                  fields.value = fields.value.map((other, place) =>
                                      place === at ? { ...other, text } : other,
                                  );
                              },
                          }),
                      ),
                  ),
              )
            : p({ class: "muted" }, "It has no hyperparameters."),
        said.value ? p({ class: "said", role: "alert" }, visible(said.value, 1000)) : null,
        div(
            { class: "section-head" },
            span({ class: "gap" }),
            button({ type: "submit", class: "primary", disabled: busy.value }, "Create"),
        ),
    );
});

/** @param {Field} field */
function fieldClass(field) {
    const before = typeof field.before === "string" ? field.before : JSON.stringify(field.before);
    return field.text === before ? "" : "changed";
}

/**
 * The configuration of a search as that of one trial: its hyperparameters are constants, and it trains as long as its
 * own loop does, where the search had no length in batches.
 * @param {Json} config
 * @param {string} name
 * @param {Values} hyperparameters
 * @param {string} checkpoint
 */
function configOf({ searcher, ...rest }, name, hyperparameters, checkpoint) {
    const { metric, smaller_is_better, max_time, time_metric, max_length } = /** @type {Json} */ (searcher);
    return {
        ...rest,
        name,
        hyperparameters,
        searcher: {
            name: "single",
            metric,
            smaller_is_better,
            ...(max_length ? { max_length } : {}),
            ...(max_time && time_metric === "batches" ? { max_length: { batches: max_time } } : {}),
            ...(checkpoint ? { source_checkpoint_uuid: checkpoint } : {}),
        },
    };
}
