"""When an action that happens every so many rollouts is due."""


def should_run_periodic_action(
    rollout_id: int,
    interval: int | None,
    num_rollout_per_epoch: int | None = None,
    num_rollout: int | None = None,
) -> bool:
    """Whether the action is due after rollout ``rollout_id`` (counted from 0).

    It is due after every ``interval`` rollouts, at the end of each epoch and after the last one.
    With ``interval`` None it is never due.
    """
    if interval is None:
        return False
    done = rollout_id + 1
    ends_epoch = num_rollout_per_epoch is not None and done % num_rollout_per_epoch == 0
    return done % interval == 0 or ends_epoch or done == num_rollout
