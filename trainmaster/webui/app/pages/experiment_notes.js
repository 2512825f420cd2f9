/** What people have written about an experiment. */
import { useSignal } from "../../vendor/signals/signals.js";
import { send } from "../api/http.js";
import { may } from "../api/session.js";
import { Markdown } from "../ui/markdown_view.js";
import { toastError } from "../ui/overlay.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */

const { button, div, label, p, textarea } = tags;

const MAX_LENGTH = 100_000; // characters

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id, notes, workspaceId } = view.board.experiment;
    const draft = useSignal(/** @type {string | null} */ (null));
    const draftBase = useSignal(""); // the notes that the draft began with
    const busy = useSignal(false);
    const writable = may("UPDATE_EXPERIMENT_METADATA", workspaceId);
    const text = draft.value;
    if (text === null) {
        return div(
            { class: "notes" },
            notes
                ? Markdown({ text: notes })
                : div({ class: "empty" }, p(null, "No notes yet: what was tried, the result, what is next.")),
            writable
                ? button(
                      {
                          type: "button",
                          onClick: () => {
                              draftBase.value = notes;
                              draft.value = notes;
                          },
                      },
                      notes ? "Edit" : "Write notes",
                  )
                : null,
        );
    }
    const save = async () => {
        busy.value = true;
        try {
            await send("PATCH", `api/v1/experiments/${id}`, { notes: text });
            draft.value = null;
            view.reload();
        } catch (error) {
            toastError(error);
        } finally {
            busy.value = false;
        }
    };
    return div(
        { class: "notes" },
        notes === draftBase.value
            ? null
            : p(
                  { class: "error-text", role: "alert" },
                  "Somebody else has changed these notes. Saving overwrites their version, shown below.",
              ),
        label(
            null,
            "Notes (headings, lists, tables, `code`, **strong**, links)",
            textarea({
                rows: 18,
                maxLength: MAX_LENGTH,
                value: text,
                onInput: event => {
                    draft.value = event.currentTarget.value;
                },
                onKeyDown: event => {
                    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void save();
                },
            }),
        ),
        div(
            { class: "section-head" },
            button({ type: "button", class: "primary", disabled: busy.value, onClick: save }, "Save"),
            button(
                {
                    type: "button",
                    onClick: () => {
                        draft.value = null;
                    },
                },
                "Discard",
            ),
        ),
        Markdown({ text: notes === draftBase.value ? text : notes }),
    );
});
