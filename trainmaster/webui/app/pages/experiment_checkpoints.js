/** An experiment's checkpoints. */
import { may } from "../api/session.js";
import { session } from "../api/state.js";
import { CheckpointList } from "../ui/checkpoint_list.js";
import { toastError } from "../ui/overlay.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */

const { button } = tags;

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id, userId, workspaceId, checkpoints, checkpointSize, metric } = view.board.experiment;
    const user = session.value?.user;
    const own = Boolean(user?.admin || user?.id === userId || session.value?.roles);
    const edit = () => {
        import("./experiment_policy.js").then(({ editPolicy }) => editPolicy(view)).catch(toastError);
    };
    return CheckpointList({
        of: `experiments/${id}`,
        number: checkpoints,
        size: checkpointSize,
        metric,
        command: `det experiment list-checkpoints ${id}`,
        changeable: own && may("UPDATE_EXPERIMENT_METADATA", workspaceId),
        tools:
            own && may("UPDATE_EXPERIMENT", workspaceId)
                ? button({ type: "button", onClick: edit }, "Choose what is kept")
                : null,
    });
});
