/** A trial once more, as an experiment of its own: with other hyperparameters, or from its best checkpoint. */
import { signal, useSignal } from "../../vendor/signals/signals.js";
import { get, send } from "../api/http.js";
import { visible } from "../lib/format.js";
import { fieldsOf, parseFields } from "../lib/hparams.js";
import { openDialog, toast } from "../ui/overlay.js";
import { href, navigate } from "../ui/router.js";
import { component, tags } from "../ui/tags.js";

/** @import { Signal } from "../../vendor/signals/signals.js" */
/** @import { Field, Values } from "../lib/hparams.js" */
/** @import { Json, TrialHead } from "../../types/api.d.ts" */

const { button, div, form, input, label, p, span } = tags;

const MAX_NAME_LENGTH = 128;

/**
 * Asks for its hyperparameters, and creates the experiment.
 * @param {TrialHead} trial
 * @param {string} [checkpoint] that it begins with
 */
export async function rerun(trial, checkpoint = "") {
    const { experiment } = await get(`api/v1/experiments/${trial.experimentId}`);
    const fields = signal(fieldsOf(trial.hparams));
    const name = signal(`${experiment.name} (trial ${trial.id})`.slice(0, MAX_NAME_LENGTH));
    await openDialog({
        title: checkpoint ? `Continue trial ${trial.id}` : `Rerun trial ${trial.id}`,
        wide: true,
        body: close => RerunForm({ trial, config: experiment.config, checkpoint, fields, name, close: () => close() }),
    });
}

/**
 * @typedef {object} RerunProperties
 * @property {TrialHead} trial
 * @property {Json} config of its experiment
 * @property {string} checkpoint
 * @property {Signal<Field[]>} fields
 * @property {Signal<string>} name
 * @property {() => void} close
 */
const RerunForm = component((/** @type {RerunProperties} */ { trial, config, checkpoint, fields, name, close }) => {
    const error = useSignal("");
    const busy = useSignal(false);
    /** @param {SubmitEvent} event */
    const create = async event => {
        event.preventDefault();
        const parsed = parseFields(fields.value);
        if ("sentence" in parsed) {
            error.value = parsed.sentence;
            return;
        }
        busy.value = true;
        try {
            const newConfig = configOf(config, name.value, parsed.values, checkpoint);
            const answer = await send("POST", "api/v1/experiments", {
                config: JSON.stringify(newConfig),
                parentId: trial.experimentId,
                activate: true,
            });
            close();
            toast(`Experiment ${answer.experiment.id} created`);
            navigate(href(`experiments/${answer.experiment.id}`));
        } catch (failure) {
            error.value = failure instanceof Error ? failure.message : String(failure);
        } finally {
            busy.value = false;
        }
    };
    return form(
        { class: "form", onSubmit: create },
        p(
            { class: "muted" },
            `Runs the code of experiment ${trial.experimentId} as a new experiment with one trial`,
            checkpoint ? `, from checkpoint ${checkpoint}.` : ".",
        ),
        label(
            null,
            "Name",
            input({
                type: "text",
                maxLength: MAX_NAME_LENGTH,
                value: name.value,
                onInput: event => {
                    name.value = event.currentTarget.value;
                },
            }),
        ),
        fields.value.length
            ? div(
                  { class: "hparam-fields", role: "group", "aria-label": "Hyperparameters" },
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
                                  fields.value = fields.value.map((other, index) =>
                                      index === at ? { ...other, text } : other,
                                  );
                              },
                          }),
                      ),
                  ),
              )
            : p({ class: "muted" }, "This trial has no hyperparameters."),
        error.value ? p({ class: "error-text", role: "alert" }, visible(error.value, 1000)) : null,
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
