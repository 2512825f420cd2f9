/** Where and with what a trial trains: hyperparameters, image, nodes, variables; as its configuration and jobs say. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { visible } from "../lib/format.js";
import { yaml } from "../lib/yaml.js";
import { Waiting } from "../ui/shell.js";
import { SourceText } from "../ui/source_text.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */
/** @import { Content } from "../../types/tags.d.ts" */
/** @typedef {{ [name: string]: any }} Json */

const { code, dd, div, dl, dt, h2, p, section } = tags;

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, attempts } = view.board;
    const config = useSignal(/** @type {Json | null} */ (null));
    const said = useSignal("");
    useEffect(() => {
        get(`api/v1/experiments/${trial.experimentId}`).then(
            answer => {
                config.value = answer.experiment.config;
            },
            error => {
                said.value = error.message;
            },
        );
    }, [trial.experimentId]);
    if (said.value) return div({ class: "empty", role: "alert" }, p(null, visible(said.value, 500)));
    const found = config.value;
    if (!found) return Waiting({});
    const environment = found["environment"] ?? {};
    const nodes = [...new Set(attempts.flatMap(one => one.nodes))];
    const facts = /** @type {[string, Content][]} */ ([
        ["Command", code(null, visible(plain(found["entrypoint"]), 2000))],
        ...Object.entries(environment.image ?? {})
            .filter(([, image]) => image)
            .map(([kind, image]) => [`Image for ${visible(kind, 20)}`, code(null, visible(plain(image), 500))]),
        ["Slots", String(found["resources"]?.slots_per_trial ?? 1)],
        ["Nodes so far", nodes.length ? visible(nodes.join(", "), 2000) : "none yet"],
        [
            "Jobs",
            attempts
                .map(one => one.job ?? "–")
                .map(one => visible(one, 60))
                .join(", ") || "none yet",
        ],
        ["Mounts", mounts(found["bind_mounts"]) || "none"],
    ]);
    return div(
        { class: "tab-columns" },
        section(
            { class: "wide" },
            dl(
                { class: "facts" },
                facts.map(([name, text]) => [dt({ key: `${name}-` }, name), dd({ key: name }, text)]),
            ),
        ),
        section(null, h2(null, "Hyperparameters"), SourceText({ text: yaml(trial.hparams), label: "Hyperparameters" })),
        section(
            null,
            h2(null, "Variables"),
            SourceText({ text: yaml(environment.environment_variables ?? {}), label: "Environment variables" }),
        ),
    );
});

/** @param {unknown} value */
function plain(value) {
    return typeof value === "string" ? value : JSON.stringify(value ?? "");
}

/** @param {unknown} given */
function mounts(given) {
    if (!Array.isArray(given)) return "";
    return given
        .map(
            one =>
                `${visible(String(one.host_path), 200)} at ${visible(String(one.container_path), 200)}${one.read_only ? " (read-only)" : ""}`,
        )
        .join(", ");
}
