/** What people have written about an experiment. */
import { useSignal } from "../../vendor/signals/signals.js";
import { send } from "../api/http.js";
import { may } from "../api/session.js";
import { Markdown } from "../ui/markdown_view.js";
import { toastError } from "../ui/overlay.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */

const { button, div, label, p, textarea } = tags;

const LONGEST = 100_000; // characters

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id, notes, workspaceId } = view.board.experiment;
    const draft = useSignal(/** @type {string | null} */ (null));
    const begun = useSignal(""); // the notes that the draft began with
    const busy = useSignal(false);
    const writable = may("UPDATE_EXPERIMENT_METADATA", workspaceId);
    const text = draft.value;
    if (text === null) {
        return div(
            { class: "notes" },
            notes
                ? Markdown({ text: notes })
                : div({ class: "empty" }, p(null, "No notes yet: what was tried, what came of it, what is next.")),
            writable
                ? button(
                      {
                          type: "button",
                          onClick: () => {
                              begun.value = notes;
                              draft.value = notes;
                          },
                      },
                      notes ? "Edit" : "Write notes",
                  )
                : null,
        );
    }
    const keep = async () => {
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
        notes === begun.value
            ? null
            : p(
                  { class: "said", role: "alert" },
                  "Somebody has changed the notes since. Saving replaces theirs; they stand below.",
              ),
        label(
            null,
            "Notes (headings, lists, tables, `code`, **strong**, links)",
            textarea({
                rows: 18,
                maxLength: LONGEST,
                value: text,
                onInput: event => {
                    draft.value = event.currentTarget.value;
                },
                onKeyDown: event => {
                    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void keep();
                },
            }),
        ),
        div(
            { class: "section-head" },
            button({ type: "button", class: "primary", disabled: busy.value, onClick: keep }, "Save"),
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
        Markdown({ text: notes === begun.value ? text : notes }),
    );
});
