/** A trial's checkpoints. */
import { may } from "../api/session.js";
import { CheckpointList } from "../ui/checkpoint_list.js";
import { component } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { id, workspaceId, checkpoints, checkpointSize, metric } = view.board.trial;
    const changeable = may("UPDATE_EXPERIMENT_METADATA", workspaceId);
    const command = `det trial describe ${id}`;
    return CheckpointList({
        of: `trials/${id}`,
        number: checkpoints,
        size: checkpointSize,
        metric,
        command,
        changeable,
    });
});
