"""A tracker without its package is refused before anything runs."""

from argparse import Namespace

from slime.arguments.check_tracking import check_tracking


def test_a_missing_package_is_named() -> None:
    args = Namespace(use_wandb=True, use_tensorboard=False)
    (problem,) = check_tracking(args)  # wandb is in no lock
    assert problem.option == "--use-wandb"
    assert "wandb is not installed" in problem.message


def test_nothing_to_say_when_no_tracker_is_asked_for() -> None:
    assert not list(check_tracking(Namespace(use_wandb=False, use_tensorboard=False)))
